"""256 common short English words, one for each value of a byte.

Each is one entry of the vocabularies of GPT-2, GPT-NeoX, Llama 2 and 3, Qwen 2, Phi-3, Gemma, Falcon, Command R,
DeepSeek, StarCoder and SmolLM2, after a space and at the start of a text: N words joined by spaces are N tokens there.
"""

_TEXT = """
able about act add again age ago air allow along also angle any apply are arm ask away bad bag bank base bed being
below big black board body both box break built burn but call can car care cast catch chain chart child city clean
close cloud cook copy could cover cross cut dark day deal did door draw drive each early earth empty end ever every
fact far fast fill find first fish flat flow fly food foot form four from full fun gate get given gold grade grand
green grow guard half hall happy hard have heart heat here high home hot house issue join keep kind know land last
law lead leave left legal less life light live long look lot love main make many mark may men mind month more move
name near never new night note off old one open order our out own page part past path phone photo place plain plane
play plus post power price put quiet raise reach ready real rest rich ring river rock roll room rough round rule run
same say scale sea see shape share ship short show sign since sit six sky slow small soft solid son soon space speed
stand state still story such take talk tell term than them then these they think this three too tool touch town
trust try turn under until very voice walk wall was water way well west wheel when which white who wide wild win
wind with word work worth would year yet young
"""
WORDS = tuple(_TEXT.split())
