"""Abbreviations whose dot does not end a sentence, of the languages written with dots and capitals.

One table for all languages: texts mix them, and requests often name none. Left out is what is also a common word of
another language ("sen", "no"), unless a number has to follow; and what can as well end a sentence ("etc.", "Inc."),
which the capital after it settles.
"""

import regex

_BEFORE_A_NAME = """
Mr Mrs Ms Mx Messrs Dr Drs Prof St Sts Mt Ft Rev Fr Gen Sgt Capt Cpt Lt Col Cmdr Adm Maj Gov Sen Rep Hon Pres Supt Bros
Hr Hrn Fr Frl Dipl Ing Mag
av bd MM Mme Mmes Mlle Mlles Mgr
dr prof sr sra dra
Sr Sra Srs Sres Srta Dra Dña Ud Uds Vd Vds Excmo Avda Av Exmo Exma Profa
Sig Sigg Dott Dr.ssa Prof.ssa Avv Geom
dhr Dhr mevr Mevr mw Mw drs ing mr
inż mgr hab ks św ul al płk ppłk Ing Mgr MUDr JUDr PhDr RNDr Bc
dl dna Dl Dna Doç Sn Av Bw Dk Gng Bb Tn Ny ThS PGS GS TS TP Tp
ул пр им проф акад г-н г-жа д-р гр пл
κ κα δρ Δρ καθ
डॉ श्री
"""
_BEFORE_MORE_TEXT = """
vs eg ie cf viz al approx esp incl excl resp ca bzw ggf evtl inkl exkl zzgl vgl sog geb gest
env ej p.ej p.ex bijv np tzw tj m.in tzn wg wzgl zob
např tzv resp popř příp dvs bl.a t.ex f.eks esim kb pl ún örn bkz напр
"""
_BEFORE_A_NUMBER = """
No Nos no nos Nr nr Nrn num núm Núm n.º nº nn N p pp P Pp pg pag pág págs pgs S s Bd Bde Abs Abb Art art Arts Kap kap
Fig fig Figs figs Tab tab Vol vol vols Ch ch Chap chap Sec sec Eq eq Ex ex Ref ref Op op Ver ver v Rev Ed ed Pt pt
Tel tel Ext ext blz str Str č čl odst rozdz poz rys tel kl nro cap Cap rif l.c см стр рис табл гл ст п т № σελ αρ
Jan Feb Mar Apr Jun Jul Aug Sep Sept Oct Nov Dec janv févr avr juil déc ene abr ago dic gen mag giu lug ott set
"""

NEVER_LAST = frozenset((_BEFORE_A_NAME + _BEFORE_MORE_TEXT).split())
BEFORE_A_NUMBER = frozenset(_BEFORE_A_NUMBER.split())

_STARTERS = """
The He She It They We You This That These Those There But And Then So If When What Why How My His Her Our Their
"""
SENTENCE_STARTERS = frozenset(_STARTERS.split())
"""English words that, capitalised behind "U.S." or "p.m.", begin a sentence."""

DOT_ORDINALS = frozenset(["German", "Czech", "Danish", "Finnish", "Hungarian", "Polish", "Turkish", "Macedonian"])
"""Languages that write "3rd" as "3."."""

_MONTHS = "Januar Jänner Februar März April Mai Juni Juli August September Oktober November Dezember"
GERMAN_MONTHS = frozenset(_MONTHS.split())

_INITIALS = regex.compile(r"(?:\p{L}{1,2}\.-?)*+[\p{L}--[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}]]\p{M}*", regex.V1)
_DOTTED = regex.compile(r"(?:\p{L}{1,2}\.-?)++\p{L}{1,3}")


def is_initials(word: str) -> bool:
    """Whether `word`, without its last dot, is a letter or letters with dots between: "J", "U.S", "e.g", "Ph.D"."""
    return bool(_INITIALS.fullmatch(word) or _DOTTED.fullmatch(word))
