"""Sentence patterns and the everyday words that fill them: what people ask a voice to say.

A slot in braces is the name of a list in WORDS. `count`, `year`, `clock`, `date`, `money` and `ordinal` are filled
with figures as people write them; the server's own normaliser then says them in words.
"""

_WORDS = {
    "person": """Anna Ben Carol David Emma Frank Grace Henry Isabel Jack Kate Liam Maria Nina Oliver Paul Rachel Sam Tom
        Victor Wendy Alice Bob Charlie Diana Edward Fiona George Hannah Ian Julia Kevin Laura Michael Nancy Oscar Peter
        Rose Sarah Thomas Mary John James Robert Linda Susan Daniel Lucy""",
    "people": """children students friends neighbors teachers workers doctors farmers players visitors parents guests
        customers engineers artists drivers nurses soldiers tourists writers""",
    "role": """teacher doctor driver farmer singer painter waiter manager engineer lawyer nurse captain student friend
        neighbor brother sister mother father uncle aunt cousin boss king queen pilot baker writer officer judge""",
    "place": """kitchen garden house office school park station hospital library museum airport market bridge beach
        hotel restaurant church theater factory village city forest mountain river lake island street corner store bank
        hall basement bathroom bedroom yard field valley harbor town""",
    "thing": """book table chair window door key letter phone picture bag box cup plate bottle coat shirt hat shoe
        umbrella lamp clock watch camera computer radio knife spoon blanket basket bicycle ball rope ladder hammer
        mirror carpet pillow candle wallet ticket map newspaper magazine pencil ring coin glass bowl""",
    "food": """bread cheese butter milk coffee tea soup rice salad fish chicken beef fruit sugar salt pepper cake pie
        chocolate honey juice water wine beer corn potatoes tomatoes onions beans apples oranges lemons bananas eggs
        breakfast lunch dinner""",
    "animal": """dog cat horse cow sheep bird mouse rabbit fox bear wolf lion tiger duck goose frog snake turtle zebra
        elephant monkey whale bee spider goat donkey""",
    "color": "red blue green yellow black white brown gray pink orange purple golden silver dark bright pale",
    "quality": """good bad big small old new young long short tall heavy light warm cold hot wet dry clean dirty quiet
        loud quick slow strong weak rich poor sweet sour soft hard deep empty full fresh broken simple strange famous
        beautiful useful dangerous careful wonderful terrible perfect common rare narrow wide smooth rough round flat
        sharp thin thick steep""",
    "feeling": "happy sad tired hungry thirsty angry afraid proud sorry ready busy bored excited surprised sick lonely",
    "did": """opened closed found lost bought sold carried dropped cleaned washed painted moved cut broke fixed pushed
        pulled lifted kicked threw caught held kept left took brought sent showed gave wanted needed liked loved hated
        remembered forgot noticed covered filled burned stole hid wore touched followed watched ordered""",
    "went": "walked ran drove went came rode flew climbed swam traveled hurried wandered returned jumped sailed",
    "do": """open close find buy sell carry clean wash paint move cut break fix push pull lift throw catch hold keep
        leave take bring send show give want need like see read write eat drink cook use build check""",
    "how": """slowly quickly quietly carefully suddenly finally usually often always never sometimes gently loudly
        easily nearly really almost probably certainly clearly happily""",
    "when": """yesterday today tomorrow tonight this_morning last_week next_month every_day before_lunch after_dinner
        at_noon at_night in_the_evening on_Monday on_Tuesday on_Wednesday on_Thursday on_Friday on_Saturday on_Sunday
        in_January in_February in_March in_April in_May in_June in_July in_August in_September in_October in_November
        in_December in_the_spring in_the_summer in_the_fall in_the_winter a_year_ago right_now soon again""",
    "where": "in on under behind near beside above below across_from in_front_of next_to inside outside around",
    "weather": "rain snow wind fog sun storm clouds thunder ice heat",
    "body": "head hand foot arm leg eye ear nose mouth face neck back knee finger heart tooth hair skin shoulder",
    "sport": "football baseball tennis golf hockey basketball chess cards swimming running dancing skiing",
    "abstract": """time money work help love hope luck peace power trouble health weather music history science law
        language education information business government energy experience freedom knowledge nature truth""",
    "number": """one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen
        seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety""",
    "unit": "minutes hours days weeks months years miles feet inches pounds degrees percent times pages steps dollars",
    "asks": "What Why When Where How Who",
    "country": """America England France Germany Italy Spain China Japan India Canada Mexico Russia Brazil Egypt Kenya
        Poland Sweden Norway Greece Ireland Scotland Australia London Paris Berlin Rome Tokyo Chicago Boston Texas""",
    "letter": "A B C D E F G H I J K L M N O P Q R S T U V W X Y Z",
    "phrase": """Hello Hi Good_morning Good_evening Good_night Goodbye Thank_you Thanks Yes No Please Sorry Welcome
        Of_course Excuse_me Well_done See_you_later Never_mind Come_in Wait Stop Great Okay Sure Maybe Not_yet Take_care
        Happy_birthday Congratulations No_problem You're_welcome How_are_you I_don't_know Let's_go""",
}

WORDS = {slot: tuple(word.replace("_", " ") for word in words.split()) for slot, words in _WORDS.items()}

SENTENCES = """
The {quality} {thing} is {where} the {thing}.
The {role} {did} the {color} {thing} {when}.
{person} {did} a {quality} {thing} from the {place}.
We {went} to the {place} {when}.
{person} and {person} {how} {went} through the {place}.
There is a {quality} {animal} {where} the {place}.
There are {number} {people} in the {place}.
The {people} were {feeling} because the {food} was {quality}.
I would like some {food} and {food}, please.
Would you like {food} or {food}?
{asks} did the {role} {do} the {thing}?
Do you {do} the {thing} {when}?
Can you {do} this {quality} {thing}?
Could you please {do} the {thing} for me?
Please {do} the {thing} {where} the {place}.
Don't {do} the {color} {thing}!
{do} the {thing}, and then {do} the {thing}.
If the {weather} comes, we will {do} the {thing}.
When the {weather} stopped, the {animal} {went} {where} the {place}.
My {role} is {feeling}, but your {role} is not.
He said, "{do} the {thing}, {person}."
She asked me to {do} the {thing} before {when}.
The {weather} was so {quality} that we {how} {did} our {thing}.
It was a {quality} day, and the {people} {went} home {when}.
{phrase}, {person}.
{phrase}!
{phrase}?
{phrase}.
{phrase}, {phrase}.
{phrase}. The {role} is {feeling} {when}.
The {thing}, the {thing}, and the {thing} are {where} the {place}.
{food}, {food}, {food} and {food}.
{quality} and {quality}.
The {quality} {role}.
{when}.
{number} {unit}.
The {animal} was {quality}; the {animal} was {quality}.
This is what we need: {abstract}, {abstract} and {abstract}.
{abstract} is more {quality} than {abstract}.
I don't have enough {abstract} to {do} it.
They have never seen so much {abstract} in {country}.
{country} is a {quality} country, isn't it?
From {country} to {country} it takes {number} {unit}.
My {body} hurts - I should see a {role}.
Her {body} is {quality}, and her {body} is {quality}.
We play {sport} {when}, but {person} likes {sport}.
The {color} {animal} (a {quality} one) {how} {went} away.
It's {number} {unit} from here to the {place}.
It will be ready in {number} {unit}.
Wait... was that the {role}'s {thing}?
You have {count} new messages.
The room is number {count}, on the {ordinal} floor.
The meeting starts at {clock}.
Your train leaves at {clock} from platform {count}.
It costs {money}, and the {thing} costs {money}.
He was born in {year}, on the {ordinal} of May.
In {year} the {role} {went} to {country}.
The date is {date}.
They were married on {date} in {country}.
About {count} {people} live in the {quality} {place}.
Spell it with the letter {letter}, then {letter} and {letter}.
That's the {ordinal} time this week, {person}!
{count} plus {count} is {count}.
Turn to page {count} of the {thing}.
The number is {count}, not {count}.
I've {how} {did} a {thing} as {quality} as this one.
You're {feeling}, aren't you, {person}?
We'll {do} it {when}, won't we?
Who {did} the {food}? It was {person}.
The {role} who {did} the {thing} is {quality}.
A {quality} {thing} is better than a {quality} {thing}.
Let me {do} the {thing} while you {do} the {thing}.
{person}'s {role} has {number} {animal}s and a {color} {thing}.
The sun was {quality}. The {place} was {quality}. Nobody {went} there.
""".strip().splitlines()
