"""256 common short English words, one for each value of a byte; most are one token for most tokenizers."""

_TEXT = """
able about above act add after again age ago air all also and animal answer any are area arm art ask away back
bad bag ball bank base bear beat bed before begin best better big bird black blood blue board boat body book
both box boy break bring brown build burn bus but buy call came can car card care carry case catch cause cell
center chair chance change check child choose city class clean clear close cold color come cook cool corner
could count country course cover cross cry cup cut dark day deal deep did door down draw dream dress drive drop
dry each ear early earth east easy eat edge egg end even ever every eye face fact fall family far farm fast
father fear feed feel feet field fight fill find fine fire first fish five fly food foot force form four free
fresh friend from front fruit full fun game garden gave get girl give glass gold good great green grew ground
group grow guess hair half hall hand happy hard hat have head hear heart heat heavy help here high hill hit hold
home hope horse hot hour house human ice idea inch iron join jump just keep key kind king knew know lake land
large last late laugh law lay lead learn leave left leg less let letter life light like line list live long look
lost lot loud love low main make man many map mark market may mean meet men might mile milk mind minute money
"""
WORDS = tuple(_TEXT.split())
