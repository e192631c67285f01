"""The words of generated documents: common, in lower case, of 3 to 8 letters."""

WORDS: tuple[str, ...] = tuple(
    """
    air arm axe bag bay bed bird boat bone book boot bowl bread brick bridge broad bronze brook brush bucket
    button cabin cable calm camp canal candle canvas cap cargo carpet castle cat cave chain chair chalk cheese
    chest circle city clay clear cliff clock cloth cloud coal coast coin cold copper coral corner cotton crane
    cream creek crown cup curtain dark dawn deep desert dew distant dock dog door dragon drum dry dust eagle early
    east echo edge elder ember empty engine evening fabric falcon farm feather fence ferry field fire fish flag
    flame flat fleet flint flour flower flute fog forest fork fountain fox frost fruit garden gate gentle glass
    glove goat gold grain granite grass gravel green grey ground guitar hammer harbor harvest hat hay hazel heavy
    helmet herb hill hollow honey horn horse house hunter ice inn iron island ivory jacket jar jewel journey
    juniper kettle key kitchen kite ladder lake lamp lantern large lawn leaf leather ledge lemon letter light
    lilac linen lion little lock lonely low lumber mantle maple marble market marsh meadow melon merchant metal
    mill mint mirror mist moon moor morning moss mountain narrow needle nest night north nut oak oar oasis ocean
    old olive onion orange orchard otter oven owl paint palace paper parade park path pearl pebble pencil pepper
    piano pigeon pillow pilot pine planet plank plate plum pocket polar pond porch pottery prairie quarry quick
    quiet quilt rabbit rain raven red reed ribbon rice ridge river road robin rock roof root rope rose rough
    round rug saddle sail salt sand scarf school sea seed shadow sharp shed sheep shell ship shore silent silk
    silver sky slate sleepy slope slow small smoke smooth snow soap soft soil south sparrow spice spider spring
    square stable stair star steam steel stone storm stove straw stream street sugar summer sun sunset swan table
    tall tea temple tent thistle thread thunder tide tiger timber tin tower town trail train tree tulip tunnel
    turtle valley velvet village vine violin wagon wall walnut warm water wave wax weather west wet wheat wheel
    white wide willow wind window winter wolf wood wool yard yellow young
    """.split()
)
"""All words, each once."""
