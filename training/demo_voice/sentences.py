"""The sentences the finished voice is judged by. None of them is ever in the corpus.

`HARVARD` is lists 1 to 6 of the IEEE recommended practice for speech quality measurements (1969): phonetically
balanced, with words nobody would choose. The others were written for this project.
"""

DEMO = (
    "Hello, and welcome.",
    "This voice was trained on two processor cores.",
    "The same request gives the same bytes.",
    "Good morning! How can I help you today?",
    "Your table for 2 is ready at 7:30.",
    "Please leave a message after the tone.",
    "Where would you like to go next?",
    "Thank you for listening, and have a good day.",
)

NATURAL = (
    "I will call you back in five minutes.",
    "The train to the city leaves at noon.",
    "Could you open the window, please?",
    "We had a long talk about the new house.",
    "My brother works at the hospital.",
    "It may rain later this afternoon.",
    "She put the keys on the kitchen table.",
    "Do you know what time the store closes?",
    "They are building a school near the park.",
    "I left my coat in the back of the car.",
    "The children were happy to see the snow.",
    "He asked me to write a short letter.",
    "There is nothing wrong with your answer.",
    "Let us meet in front of the library.",
    "The food was good, but the room was cold.",
    "Turn left at the second traffic light.",
    "Nobody told us about the change of plan.",
    "You should drink more water every day.",
    "Her father taught her how to drive.",
    "This is the best coffee in town.",
    "We need to find a different way home.",
    "The meeting was moved to Thursday morning.",
    "I have never been to the north of the country.",
    "Please send me the number of your order.",
    "The dog ran across the street and stopped.",
    "What did the doctor say about your hand?",
    "Most people here speak more than one language.",
    "He was late because he missed the bus.",
    "The music from the next room kept me awake.",
    "Can we finish this before the end of the week?",
    "My mother grows red flowers in her garden.",
    "It takes about three hours to get there.",
    "They bought the big picture for the office.",
    "Every story needs a good beginning.",
    "The police are looking for a white car.",
    "You can pay with cash or by card.",
    "I think we should wait for the others.",
    "The old man walked slowly down the hill.",
    "Our team won the last game of the year.",
    "The light in the hall does not work.",
)

HARVARD = (
    "The birch canoe slid on the smooth planks.",
    "Glue the sheet to the dark blue background.",
    "It's easy to tell the depth of a well.",
    "These days a chicken leg is a rare dish.",
    "Rice is often served in round bowls.",
    "The juice of lemons makes fine punch.",
    "The box was thrown beside the parked truck.",
    "The hogs were fed chopped corn and garbage.",
    "Four hours of steady work faced us.",
    "A large size in stockings is hard to sell.",
    "The boy was there when the sun rose.",
    "A rod is used to catch pink salmon.",
    "The source of the huge river is the clear spring.",
    "Kick the ball straight and follow through.",
    "Help the woman get back to her feet.",
    "A pot of tea helps to pass the evening.",
    "Smoky fires lack flame and heat.",
    "The soft cushion broke the man's fall.",
    "The salt breeze came across from the sea.",
    "The girl at the booth sold fifty bonds.",
    "The small pup gnawed a hole in the sock.",
    "The fish twisted and turned on the bent hook.",
    "Press the pants and sew a button on the vest.",
    "The swan dive was far short of perfect.",
    "The beauty of the view stunned the young boy.",
    "Two blue fish swam in the tank.",
    "Her purse was full of useless trash.",
    "The colt reared and threw the tall rider.",
    "It snowed, rained, and hailed the same morning.",
    "Read verse out loud for pleasure.",
    "Hoist the load to your left shoulder.",
    "Take the winding path to reach the lake.",
    "Note closely the size of the gas tank.",
    "Wipe the grease off his dirty face.",
    "Mend the coat before you go out.",
    "The wrist was badly strained and hung limp.",
    "The stray cat gave birth to kittens.",
    "The young girl gave no clear response.",
    "The meal was cooked before the bell rang.",
    "What joy there is in living.",
    "A king ruled the state in the early days.",
    "The ship was torn apart on the sharp reef.",
    "Sickness kept him home the third week.",
    "The wide road shimmered in the hot sun.",
    "The lazy cow lay in the cool grass.",
    "Lift the square stone over the fence.",
    "The rope will bind the seven books at once.",
    "Hop over the fence and plunge in.",
    "The friendly gang left the drug store.",
    "Mesh wire keeps chicks inside.",
    "The frosty air passed through the coat.",
    "The crooked maze failed to fool the mouse.",
    "Adding fast leads to wrong sums.",
    "The show was a flop from the very start.",
    "A saw is a tool used for making boards.",
    "The wagon moved on well oiled wheels.",
    "March the soldiers past the next hill.",
    "A cup of sugar makes sweet fudge.",
    "Place a rosebush near the porch steps.",
    "Both lost their lives in the raging storm.",
)

LONG = (
    "The market opens early on Saturday. By six the first people are there with bread, fruit and fresh fish. "
    "My sister always goes with me. She knows every seller by name and asks about their children. "
    "We walk from one end of the street to the other before we buy anything. "
    "Then we sit down with a cup of coffee and watch. Nobody is in a hurry. "
    "At noon the bells ring, and an hour later the street is clean and quiet again.",
    "Last summer we took a boat across the lake. The water was dark and very still. "
    "After two hours we came to a small island with a white house and a few trees. "
    "An old woman came down to meet us. She gave us tea, and we told her the news from the town. "
    "She had lived there for forty years. Was she ever lonely? She smiled and said no. "
    "In the winter she reads, and in the spring the birds come back.",
    "Nothing in this room is new. The table came from a school, and the chairs from a theater that closed. "
    "I found the lamp behind a shop in the rain. It took me three evenings to make it work. "
    "My friends say that I should buy better things. I say that these have a story. "
    "When the power went out last week, we lit some candles and talked until morning. "
    "It was the best party of the year.",
)
"""Paragraphs of common words, six to ten sentences each."""
