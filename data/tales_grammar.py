"""The words and sentences of the tales: a grammar with memory.

A rule is a list of options. An option that is plain text is a word, and its slot remembers it:
the first `{object}` of a tale chooses a word, every later `{object}` repeats it. A sentence can
thus refer to any earlier one. An option with slots is a template, which is expanded in place.

    {object}          choose, or repeat, the word of this slot
    {object.friend}   another slot of the same rule: the tag after the dot distinguishes the two
    {a object}        in a form of FORMS: with its article, as a pronoun, ...
    {use:object}      choose from the rule "use:" + KIND[the word of the slot object]
    ...*3             an option that is three times as likely

No text may have two derivations, which the tests check: keep the options of a rule distinct, and
let only one rule generate a sentence.

Each tale has a song that grows with every verse. Objects are never chosen twice in a tale; another
word may be, in a later sentence: a model cannot be expected to know all words of a tale so far.
"""

from __future__ import annotations

from collections.abc import Callable


def _words(text: str) -> list[str]:
    return text.split(", ")


# Names and objects are mentioned again later in a tale. A small model learns to copy a word that
# occurs often, so these lists are short. Words that occur only once come from longer lists.
GIRLS = _words("Amy, Ida, Kate, Lucy, Mia, Zoe")
BOYS = _words("Ben, Dan, Gus, Max, Otto, Tom")
OBJECTS = {
    "music": _words("drum, flute"),
    "wear": _words("hat, crown"),
    "toy": _words("kite, ball"),
    "home": _words("lamp, cup"),
}
KIND = {word: kind for kind, words in OBJECTS.items() for word in words}

SONGS = _words("merry, silly, sweet, slow, quick, loud, soft, jolly, funny, sad, long, short")

_GIRLS = frozenset(GIRLS)


def _article(word: str) -> str:
    return ("an " if word[0] in "aeiou" else "a ") + word


def _capital(word: str) -> str:
    return word[0].upper() + word[1:]


def _gender(she: str, he: str) -> Callable[[str], str]:
    return lambda name: she if name in _GIRLS else he


FORMS = {
    "a": _article,
    "A": lambda word: _capital(_article(word)),
    "Up": _capital,
    "he": _gender("she", "he"),
    "He": _gender("She", "He"),
    "him": _gender("her", "him"),
    "his": _gender("her", "his"),
    "His": _gender("Her", "His"),
}

WORDS = {
    "hero": GIRLS[::2] + BOYS[::2],
    "friend": GIRLS[1::2] + BOYS[1::2],
    "object": [word for words in OBJECTS.values() for word in words],
    "animal": _words(
        "fox, rabbit, mouse, bear, duck, frog, goat, squirrel, badger, otter, mole, kitten, puppy, "
        "turtle, beaver, panda, pony, lamb, owl, crow, pig, donkey, goose, hamster, swan, wolf, "
        "parrot, lizard, camel, tiger, lion, deer, seal, zebra"
    ),
    "trait": _words(
        "brave, shy, clever, kind, curious, gentle, lazy, busy, proud, merry, quiet, silly, "
        "polite, stubborn, careful, noisy, sleepy, hungry, patient, cheerful, eager, bold, calm, "
        "friendly, lonely, tidy, funny, dreamy, wise, young, old, loyal, jolly, grumpy, nosy, "
        "chatty, strong, plump, sly, smart, tired, clumsy"
    ),
    "look": _words(
        "tiny, little, small, big, huge, shiny, old, new, round, pretty, dusty, strange, plain, "
        "heavy, bright, dull, odd, fancy, bent, lovely, simple, fine, cheap, rare, neat, clean, "
        "dirty, lucky, cute, grand, ugly, cracked"
    ),
    "colour": _words(
        "red, blue, green, yellow, orange, purple, pink, white, black, brown, gray, golden, "
        "silver, striped, spotted, tan"
    ),
    "trinket": _words(
        "mirror, vase, clock, bowl, doll, book, bell, plate, jar, jug, puzzle, pillow, stool, rug, "
        "kettle, mug, globe, map, picture, flag, bottle, umbrella, spoon, brush"
    ),
    "place": _words(
        "river, forest, hill, meadow, beach, lake, pond, garden, farm, market, bridge, mill, barn, "
        "cave, castle, harbor, field, park, valley, well, tower, school, bakery, station, library, "
        "church, cliff, stable, swamp, inn, shop, zoo, camp, palace"
    ),
    "view": _words(
        "dark, sunny, tiny, peaceful, empty, famous, windy, crowded, hidden, misty, muddy, foggy, "
        "distant, quiet, noisy, old, new, big, small, pretty, strange, lonely, busy, lovely"
    ),
    "near": _words("near, by, behind, beside, beyond, past, close to, next to, opposite"),
    "food": _words(
        "apples, pears, plums, figs, nuts, peas, beans, buns, pies, eggs, tarts, cakes, rolls, "
        "limes, dates, beets, leeks, grapes, lemons, melons, olives, onions, carrots, cherries, "
        "berries, cookies, muffins, waffles, pancakes, turnips, raisins, seeds, peaches, mangoes, "
        "yams, scones, noodles, pickles, crackers, bagels, walnuts, bananas, peppers, pumpkins, "
        "dumplings, sausages, biscuits"
    ),
    "supply": _words("sugar, flour, butter, milk, honey, salt"),
    "taste": _words(
        "fresh, sweet, hot, warm, cold, crisp, juicy, tasty, sour, salty, spicy, soft, sticky, "
        "dried, crunchy, big, small, round, yummy, lovely"
    ),
    "number": _words("two, three, four, five, six, seven, eight, nine, ten, eleven, twelve"),
    "creature": _words(
        "bees, ants, bugs, snails, moths, worms, hens, cows, birds, flies, wasps, crabs, bats, "
        "rats, cats, dogs, colts, chicks, gulls, doves, hawks, storks, slugs, spiders, snakes, "
        "sheep"
    ),
    "weather": _words(
        "hot, cold, wet, dry, warm, cool, mild, icy, sunny, windy, rainy, foggy, snowy, misty, "
        "cloudy, stormy, frosty, chilly, bright, dull"
    ),
    "time": _words("morning, afternoon, evening, day"),
    "weekday": _words("Monday, Tuesday, Wednesday, Thursday, Friday, Saturday, Sunday"),
    "month": _words(
        "January, February, March, April, May, June, July, August, September, October, November, "
        "December"
    ),
    "family": _words(
        "mother, father, grandma, grandpa, sister, brother, aunt, uncle, cousin, niece"
    ),
    "holder": _words("basket, bag, box, sack, bucket, crate, cart"),
    "mark": _words(
        "stars, dots, hearts, moons, circles, suns, crosses, dragons, letters, leaves, roses, "
        "clouds"
    ),
    "clothes": _words("jacket, sweater, coat, shirt, vest, cloak, apron, gown, robe"),
    "hobby": _words(
        "singing, dancing, painting, reading, cooking, fishing, swimming, climbing, drawing, "
        "sailing, skating, baking, jumping, whistling, counting, dreaming, sewing, knitting, "
        "juggling, running, hiding, digging, rowing, skiing, boxing, acting"
    ),
    "trade": _words(
        "baker, farmer, miller, sailor, teacher, doctor, painter, tailor, gardener, shepherd, "
        "cook, captain, weaver, potter, clown, pilot, judge, nurse, knight, singer, dancer"
    ),
    "moved": _words(
        "walked, ran, hopped, skipped, raced, marched, hurried, wandered, strolled, rushed, crept, "
        "tiptoed, danced, jogged, trotted, dashed, crawled, sped, stomped, sneaked, rode"
    ),
    "raced": _words("ran, raced, rushed, dashed, sped, zoomed, hurried, galloped"),
    "glad": _words(
        "happy, glad, proud, excited, thankful, delighted, pleased, amazed, thrilled, surprised"
    ),
    "sad": _words(
        "sad, upset, worried, unhappy, gloomy, afraid, nervous, troubled, cross, puzzled, scared, "
        "lonely"
    ),
    "gladly": _words(
        "happily, kindly, warmly, cheerfully, politely, proudly, eagerly, brightly, bravely, "
        "quickly, at once, merrily"
    ),
    "sadly": _words("sadly, nervously, slowly, unhappily, crossly, bitterly, in fear, shyly"),
    "said": _words(
        "said, whispered, called, shouted, laughed, cried, yelled, sang, giggled, announced"
    ),
    "sighed": _words("sighed, sobbed, moaned, groaned, wailed, wept, whimpered, howled"),
    "soon": _words(
        "Soon, At once, Right away, Just then, Before long, A moment later, After a while, Suddenly"
    ),
    "spot": _words(
        "rock, tree, bush, bench, log, fence, gate, wall, stump, haystack, table, hut, statue"
    ),
    "trip": _words("rock, root, log, stump, stick, stone, branch, rope"),
    "tool": _words("rope, pole, shovel, board, net, hook"),
    "stuck": _words(
        "in a deep hole, up a tall tree, in thick mud, under a log, in a bush, on a roof, behind a "
        "locked gate, in a dry well, on a thin branch, in a net, on a high wall, in a dark cellar"
    ),
    "dish": _words("soup, stew, jam, bread, porridge, pudding"),
    "sweet": _words("sweet, tasty, hot, cold, spicy, fine, sour, salty"),
    "praise": _words("lovely, fine, great, perfect, splendid, wonderful"),
    "noise": _words("loud, soft, strange, odd, funny, dull, ugly, sad"),
    "light": _words("lamp, candle"),
    "hour": _words("supper, sunset, dinner, midnight, bedtime, dawn, sunrise, lunch"),
    "song": SONGS,
    "use:music": [f"played {song} songs on it" for song in SONGS],
    "use:wear": [
        f"wore it {how}"
        for how in _words(
            "at once, to bed, all day, to school, to supper, at home, upside down, backward, "
            "in the rain, in the sun, every night, with pride"
        )
    ],
    "use:toy": [
        f"played with it {how}"
        for how in _words(
            "all day, until dark, in the yard, on the grass, in the rain, in the sun, every day, "
            "before supper, after lunch, at home, in bed, on the roof"
        )
    ],
    "use:home": [
        f"put it {where} {thing}"
        for where in ("near", "under", "behind")
        for thing in ("the bed", "the door", "the stove", "the window")
    ],
}

SENTENCES = {
    "story": [
        "{beginning} {own} {carry} {loss} {grief} {helper} {asking} {finding} {thanks} {keeping}",
        "{beginning} {own} {outing} {owner} {offer} {answer} {swap} {kept}",
        "{beginning} {birthday} {gift} {wrapping} {giving} {delight} {feast} {ending}",
        "{beginning} {outing} {trouble} {plea} {fetching} {rescue} {thanks} {ending}",
        "{beginning} {plan} {need} {errand} {helper} {bringing} {cooking} {serving} {ending}",
        "{beginning} {sound} {search} {crying} {comfort} {feast} {ending}",
        "{beginning} {outing} {helper} {challenge} {race} {finish} {ending}",
    ],
    # Who the tale is about.
    "beginning": [
        "{intro} {detail}",
    ],
    "intro": [
        "Once there was {a trait} {animal} named {hero}.",
        "From {a view} {place} came {a trait}, {trait.b} {animal} named {hero}.",
        "A long time ago, in {a look} {colour.a} house, lived {a trait} {animal} named {hero}.",
        "Long ago, {near} {a view} {place} lived {a trait} {animal} named {hero}.",
        "Here is the tale of {number} {trait.b} {creature} and {a trait} {animal} named {hero}.",
        "This is the tale of {a trait}, {trait.b} child named {hero}.",
        "Everyone near {a view} {place} liked {a trait} {animal} named {hero}.",
        "{Up near} {a view} {place} lived {a trait} {colour.a} {animal} named {hero}.",
        "My {trait} {family} knew {a trait.b} {animal} named {hero}.",
        "There was once {a trait} child named {hero}.",
        "Nobody liked {hobby} more than {a trait} {colour.a} {animal} named {hero}.",
    ],
    "detail": [
        "{hero} liked {food.c}, {food.d} and {taste.c} {food.e}.",
        "{hero} had {a colour.c} bed and {a look.c} {trinket.c}. The {trinket.c} was {colour.d}.*4",
        "{hero} and {his hero} {family.c} sold {taste.c} {food.c} and {food.d}.",
        "{hero} was good at {hobby.c} and bad at {hobby.d}.",
        "{hero} often wore {a look.c} {colour.c} {clothes.c}.",
        "{hero} gave {food.c} to {number.c} {trait.c} {creature.c} every {weekday.c}.",
        "{hero} liked {hobby.c}, but {his hero} {family.c} liked {hobby.d}.",
        "{hero} was afraid of {colour.c} {creature.c} and {trait.c} {creature.d}.",
        "{hero} had {a trait.c} {family.c} who was {a trade}.",
        "{hero} loved {hobby.c}, {food.c} and {trait.c} {creature.c}.",
    ],
    "when": [
        "One {weather} {time}",
        "One {weather} {weekday}*2",
        "On {a weather} {month} {time}*2",
        "Late one {weekday} in {month}",
        "Early one {weather} {weekday}",
        "One {time} in {month}",
    ],
    # Where the hero goes.
    "outing": [
        "{when}, {he hero} {moved} to {a view.go} {place.go} for {number.go} {food.go}.",
        "{when}, {hero} {moved} past {a view.by} {place.by} to {a view.go} {place.go}.",
        "{when}, {hero} took {taste.go} {food.go} and {a look.go} {trinket.go} to {a view.go} "
        "{place.go}.",
        "{when}, {hero} and {number.go} {trait.go} {creature.go} {moved} to {a view.go} "
        "{place.go}.",
        "{when}, {his hero} {family.go} sent {him hero} to the {place.go} for {taste.go} "
        "{food.go}.",
        "{when}, {he hero} put on {a colour.go} {clothes.go} and {moved} to {a view.go} "
        "{place.go}.",
        "{when}, {hero} followed {number.go} {colour.go} {creature.go} to {a view.go} {place.go}.",
        "{when}, {hero} {moved} to {a view.go} {place.go} to see {a trait.go} {trade.go}.",
    ],
    # A thing is owned, lost and found.
    "own": [
        "{hero} had {a look.own} {colour} {object}. {thing}",
        "{His hero} {family.own} had made {him hero} {a look.own} {colour} {object}. {thing}",
        "{He hero} had bought {a look.own} {colour} {object} from {a trait.own} {trade.own}. "
        "{thing}",
        "{hero} had traded {number.own} {taste.own} {food.own} for {a look.own} {colour} "
        "{object}. {thing}",
        "{He hero} had found {a look.own} {colour} {object} {near.own} {a view.own} {place.own}. "
        "{thing}",
        "{A trait.own} {trade.own} had given {him hero} {a look.own} {colour} {object}. {thing}",
    ],
    "thing": [
        "The {object} had {number.thing} {look.thing} {mark} on it.",
        "The {object} had cost {number.thing} {taste.thing} {food.thing}.",
        "The {object} was {look.thing} and smelled of {food.thing}.",
        "The {object} lay in {a look.thing} {holder.thing} {near.thing} {a look.spot} "
        "{spot.thing}.",
    ],
    "carry": [
        "{when}, {he hero} took it to {a view.go} {place.go} with {number.go} {food.go}.",
        "{when}, {he hero} packed it in {a look.go} {holder} and {moved} to {a view.go} "
        "{place.go}.",
        "{when}, {hero} {moved} past {a view.go} {place.go} to show it to {a trait.go} {trade.go}.",
        "{when}, {he hero} {moved} to {a view.go} {place.go} with it and {a colour.go} {holder} "
        "of {food.go}.",
    ],
    "loss": [
        "{Up number.loss} {trait.loss} {colour.loss} {creature.loss} came by, and then the "
        "{object} was gone.",
        "{He hero} left it beside {a look.loss} {spot.loss} to eat {taste.loss} {food.loss}, and "
        "soon it was gone.",
        "There {he hero} tripped over {a look.loss} {colour.loss} {trip.loss} and lost the "
        "{object}.",
        "While {he hero} was {hobby.loss}, {number.loss} {colour.loss} {creature.loss} took it "
        "away.",
        "{hero} played with {number.loss} {trait.loss} {creature.loss} and forgot it "
        "{near.loss} {a look.loss} {spot.loss}.",
    ],
    "grief": [
        '"My {object} is gone!" {sighed} {hero} {sadly}.',
        "{hero} looked behind {a look.grief} {spot.grief} but saw only {trait.grief} "
        "{creature.grief}.",
        "{He hero} found {a look.grief} {trinket.grief} and {number.grief} {food.grief}, but no "
        "{object}.",
        '"Where is my {object}?" {sighed} {hero}, {sad} and {sad.b}.',
    ],
    "helper": [
        "Along came {a trait.f}, {trait.g} {animal.f} named {friend}. {about}",
        "{soon}, {a trait.f} {animal.f} came by, whose name was {friend}. {about}",
        "There {he hero} met {a trait.f} {animal.f} named {friend}. {about}",
        "Nearby sat {a colour.f} {animal.f} named {friend}. {about}",
        "{soon}, {hero} saw {a trait.f} {colour.f} {animal.f} named {friend}. {about}",
        "{Up near.f} {a look.f} {spot.f} sat {a trait.f} {animal.f} named {friend}. {about}",
    ],
    "about": [
        "{friend} was {hobby.h} with {number.h} {trait.h} {creature.h}.",
        "{friend} had {taste.h} {food.h} in {a look.h} {holder.h}.",
        "{friend} wore {a colour.h} {clothes.h} and ate {food.h}.",
        "{friend} loved {hobby.h} and {taste.h} {food.h}.",
    ],
    "asking": [
        '"Did you see my {object}?" asked {hero} {sadly.ask}.',
        '"I had my {object} at {a view.ask} {place.ask}," said {hero} {sadly.ask}.',
        '"Why so {sad.ask}?" asked {friend} {gladly.ask}. "I lost my {object}," said {hero}.',
        '"Please help me, {friend}!" {sighed.ask} {hero} {sadly.ask}.',
    ],
    "finding": [
        '"I saw it by {a look.find} {colour.find} {spot.find} at the {place.find}," {said} '
        "{friend}, and there it was.",
        "{friend} {moved.find} past {a view.find} {place.find} and found it behind {a look.find} "
        "{spot.find}.",
        '"{Up number.find} {trait.find} {creature.find} have it!" {said} {friend}, and '
        "{moved.find} off to get it.",
        "{friend} found it {near.find} {a view.find} {place.find} between {number.find} "
        "{colour.find} {creature.find}.",
        "{friend} {moved.find} off and came back with it and {number.find} {taste.find} "
        "{food.find}.",
    ],
    "thanks": [
        "{hero} was {glad.t} and gave {him friend} {number.t} {taste.t} {food.t} and {a look.t} "
        "{trinket.t}.",
        '"Thank you!" {said.t} {hero} {gladly.t} and gave {him friend} {number.t} {taste.t} '
        "{food.t}.",
        "{hero} thanked {friend} with {taste.t} {food.t}, {food.u} and {a look.t} {trinket.t}.",
    ],
    "keeping": [
        "From then on, {hero} kept the {object} in {a look.end} {holder.end}.",
        "That night, {he hero} put the {object} by {his hero} bed and dreamed of "
        "{trait.end} {creature.end}.",
        "Now the {object} stands by {a look.end} {trinket.end} in {hero}'s house.",
    ],
    # Two things change hands.
    "owner": [
        "There {hero} met {a trait.f} {animal.f} named {friend}. {friend} had {a look.f} "
        "{colour.f} {object.f}.",
        "There sat {a trait.f} {animal.f} named {friend}. {friend} was holding {a look.f} "
        "{colour.f} {object.f}.",
        "{soon}, {a trait.f} {animal.f} named {friend} came by. {friend} had {a look.f} "
        "{colour.f} {object.f}.",
    ],
    "offer": [
        '"What {a praise} {object.f}!" {said.offer} {hero} {gladly.offer}. "Shall we trade?"',
        '"Give me your {object.f} for my {object}," {said.offer} {hero} {gladly.offer}.',
        '"I will trade my {object} and {taste.offer} {food.offer} for it," {said.offer} {hero}.',
    ],
    "answer": [
        '"Yes, if I get {number.yes} {taste.yes} {food.yes} too," {said} {friend} {gladly}.',
        '"Yes, for the {object} and {a look.yes} {trinket.yes}," {said} {friend} {gladly}.',
        '"Yes, and take my {number.yes} {trait.yes} {creature.yes} too," {said} {friend} {gladly}.',
    ],
    "swap": [
        "So {hero} got the {object.f}, was {glad} and {use.hero:object.f}.",
        "So {friend} got the {object}, was {glad} and {use.friend:object}.",
        "{hero} was {glad}, {friend} was {glad.b}, and they {moved.swap} home {near.swap} "
        "{a view.swap} {place.swap}.",
    ],
    "kept": [
        "To this day, {hero} has the {object.f}, and {friend} has the {object}.",
        "Now {hero} keeps the {object.f} by {a look.kept} {trinket.kept}, and {friend} takes the "
        "{object} to {a view.kept} {place.kept}.",
        "Now {friend} shows the {object} to {trait.kept} {creature.kept}, and {hero} "
        "keeps the {object.f} behind {a look.kept} {spot.kept}.",
    ],
    # A present.
    "birthday": [
        "{hero} had {a trait.f} friend, {a animal.f} named {friend}. {friend} would be "
        "{number.f} on {weekday.f}.",
        "{hero}'s best friend was {a trait.f} {animal.f} named {friend}. {friend} had a birthday "
        "in {month}.",
        "{hero} played with {a trait.f} {colour.f} {animal.f} named {friend}. {friend} turned "
        "{number.f} on {a weather} {weekday.f}.",
    ],
    "gift": [
        "{hero} {moved} past {a view.by} {place.by} and bought {a look.gift} {colour} {object} "
        "from {a trait.gift} {trade.gift}.",
        "{hero} took {taste.gift} {food.gift} to {a trait.gift} {trade.gift} and got "
        "{a look.gift} {colour} {object}.",
        "{hero} {moved} to {a view.by} {place.by} and found {a look.gift} {colour} {object} "
        "behind {a look.by} {spot.gift}.",
    ],
    "wrapping": [
        "{hero} wrapped the {object} in {colour.wrap} paper with {number.wrap} {look.wrap} "
        "{mark.wrap}.",
        "{He hero} hid the {object} in {a look.wrap} {holder} with {number.wrap} {taste.wrap} "
        "{food.wrap}.",
        "{He hero} painted {number.wrap} {colour.wrap} {mark.wrap} on the {object} and "
        "{moved.wrap} to {friend}.",
    ],
    "giving": [
        '"Happy birthday, {friend}!" {said} {hero} {gladly}.',
        '"This is for {a trait.give} friend," {said} {hero} {gladly}.',
    ],
    "delight": [
        '"What {a praise} {object}!" {said.delight} {friend} {gladly.delight}, and {he friend} '
        "{use:object}.",
        "{friend} was {glad} and {glad.b}, and {he friend} {use:object}.",
    ],
    # Someone needs help.
    "trouble": [
        "There {he hero} found {a trait.f}, {trait.g} {animal.f} named {friend}. {friend} was "
        "stuck {stuck}.",
        "{soon}, {hero} saw {a trait.f} {animal.f} named {friend}. {friend} was stuck {stuck} "
        "with {number.f} {food.f}.",
        "There {he hero} saw {a colour.f} {animal.f} in {a colour.g} {clothes.f}. It was "
        "{friend}. {friend} was stuck {stuck}.",
    ],
    "plea": [
        '"Help me!" {sighed} {friend} {sadly}.',
        '"I have been here for {number.plea} hours!" {sighed} {friend}, {sad} and {sad.b}.',
        '"{Up number.plea} {trait.plea} {creature.plea} ran off and left me here!" {sighed} '
        "{friend}.",
    ],
    "fetching": [
        "{hero} {moved.f} to {a trait.fetch} {trade.f} and got {a look.fetch} {colour.fetch} "
        "{tool}.",
        "{hero} found {a look.fetch} {tool} {near.fetch} {a colour.fetch} {spot.fetch}.",
        "{hero} {moved.f} past {a view.fetch} {place.fetch} to borrow {a look.fetch} {tool}.",
    ],
    "rescue": [
        '"Take the {tool}!" {said} {hero} {gladly}, and out came {friend}, {glad} and {glad.b}.',
        "With help from {number.out} {trait.out} {creature.out}, {hero} pulled {friend} out.",
    ],
    # A meal.
    "plan": [
        "{hero} wanted to make {sweet} {dish} for {his hero} {trait.p} {family.p}.",
        "{A trait.p} {trade.p} had asked {him hero} to make {sweet} {dish}.",
    ],
    "need": [
        "The {dish} needed {supply}, but {number.need} {trait.need} {creature.need} had eaten all "
        "the {supply}.",
        "The {dish} needed {supply}, but the {supply} had fallen into {a look.need} {holder.need} "
        "of {taste.need} {food.need}.",
    ],
    "errand": [
        "{when}, {hero} {moved} to {a view.go} {place.go} to look for more.",
        "{when}, {he hero} took {number.go} {look.go} coins to {a view.go} {place.go} to buy "
        "{supply}.",
        "{when}, {he hero} asked {a trait.go} {trade.go} at {a view.go} {place.go} for "
        "{supply}, but in vain.",
        "{when}, {he hero} looked for {supply} {near.go} {a view.go} {place.go}, but found "
        "only {creature.go}.",
    ],
    "bringing": [
        '"Take my {number.bring} {look.bring} jars of {supply}," {said.bring} {friend} '
        "{gladly.bring}.",
        '"I have {supply} in {a look.bring} {holder.bring}," {said.bring} {friend} {gladly.bring}.',
    ],
    "cooking": [
        "They cooked the {dish} with the {supply} and {taste.cook} {food.cook} in {a look.cook} "
        "{colour.cook} pot.",
        "They cooked the {dish} with the {supply}, {number.cook} {taste.cook} {food.cook} and "
        "{food.last}.",
    ],
    "serving": [
        "The {dish} was {praise}, and they ate it with {number.s} {taste.s} {food.s}.",
        "{Up number.s} {trait.s} {creature.s} came by to eat the {dish} too.",
        "They ate the {dish} {near.s} {a view.s} {place.s} until {hour}.",
        '"What {praise} {dish}!" {said.s} {hero}, and {friend} sang {song} songs until {hour}.',
    ],
    "feast": [
        "Then they ate {number.x} {taste.x} {food.x} and {taste.y} {food.y}.",
        "They sang {song} songs about {trait.x} {creature.x} until {hour}.",
        "Then they {moved.x} to {a view.x} {place.x} and shared {number.x} {taste.x} {food.x}.",
        "{friend}'s {family.x} gave them {taste.x} {food.x}, {food.y} and {food.z}.",
    ],
    # A noise at night.
    "sound": [
        "One {weather} night, {hero} heard {a noise} noise {near.s} {a view.s} {place.s}.",
        "At {hour.s}, {number.s} {trait.s} {creature.s} told {him hero} about {a noise} noise "
        "{near.s} the {place.s}.",
    ],
    "search": [
        "{hero} took {a look.s} {light} and {a colour.s} {tool} and {moved} out.",
        "{He hero} put on {a look.s} {colour.s} {clothes.s} and {moved} out with {his hero} "
        "{trait.s} {family.s}.",
    ],
    "crying": [
        "It was {a trait.f} {animal.f} named {friend}. {friend} was {sad} and {sad.b}.",
        "There sat {a trait.f} {animal.f} named {friend}. {friend} had lost {his friend} "
        "{look.f} {trinket.f}.",
        "It was {a colour.f} {animal.f} {near.f} {a look.f} {spot.f}, whose name was {friend}. "
        "{friend} was {sad}.",
    ],
    "comfort": [
        '"Take my {look.give} {colour.give} {trinket.give}," {said} {hero} {gladly}.',
        "{hero} gave {him friend} {number.give} {taste.give} {food.give} and {a look.give} "
        "{trinket.give}.",
        '"Do you like {hobby.give} and {taste.give} {food.give}?" asked {hero} {gladly}.',
    ],
    # A race.
    "challenge": [
        '"Let us race to the {place.race} for {a look.race} {colour} {object}," {said.race} '
        "{friend} {gladly.race}.",
        '"Who gets to the {place.race} first wins {a look.race} {colour} {object}!" {said.race} '
        "{friend}.",
    ],
    "race": [
        "They {raced} past {a view.race} {place.by} and {number.race} {trait.race} "
        "{creature.race}.",
        "{hero} {raced} past {a trait.race} {trade.race}, and {friend} {raced.f} past "
        "{number.race} {colour.race} {creature.race}.",
    ],
    "finish": [
        "{turn} {prize}*2",
        "{fall} {second}",
    ],
    "turn": [
        "Then {friend} tripped over {a look.turn} {colour.turn} {trip}.",
        "Then {friend} stopped for {number.turn} {taste.turn} {food.turn}.",
    ],
    "fall": [
        "Then {hero} tripped over {a look.turn} {colour.turn} {trip}.",
        "Then {hero} stopped to feed {number.turn} {trait.turn} {creature.turn}.",
    ],
    "prize": [
        "So {hero} won the {object}, was {glad} and {use:object}.",
        "So {hero} won the {object}, and {a trait.prize} {trade.prize} gave {friend} "
        "{taste.prize} {food.prize}.",
    ],
    "second": [
        "So {friend} won the {object}, but gave {hero} {number.prize} {taste.prize} {food.prize}.",
        "So {friend} got the {object}, and {hero} got {a look.prize} {colour.prize} "
        "{trinket.prize}.",
    ],
    "ending": [
        "From then on, they enjoyed {hobby.end} and {hobby.z} with {trait.end} {creature.end}.",
        "Every {weekday.end}, {hero} and {friend} still eat {taste.end} {food.end} and "
        "{food.last}.",
        "That night, {hero} dreamed of {number.end} {colour.end} {creature.end} and {taste.end} "
        "{food.end}.",
        "{hero} {moved.end} home and told {his hero} {trait.end} {family.end} about {friend}.",
        "{friend} and {number.end} {trait.end} {creature.end} {moved.end} home with {hero}.",
        "{hero} gave {friend} {a look.end} {colour.end} {trinket.end}, and they were friends "
        "forever.",
    ],
}


def _verses(n: int) -> str:
    """A song of n verses, each of which puts a new word before those of the verse before:
    "hens, flies hens, storks flies hens"."""
    words = [f"{{sung.{place}}}" for place in range(n)]
    return ", ".join(" ".join(reversed(words[: count + 1])) for count in range(n))


def _with_song(plot: str) -> str:
    """The plot with a song before its last part."""
    before, _, last = plot.rpartition(" ")
    return f"{before} {{singing}} {last}"


SONG = {
    "story": list(map(_with_song, SENTENCES["story"])),
    "singing": [
        '{hero} sang: "Oh, {verses}!"',
        '{friend} sang: "Oh, {verses}!"',
        'Then they sang: "Oh, {verses}!"',
    ],
    "verses": list(map(_verses, range(3, 7))),
    "sung": WORDS["creature"],
    # "{food.last}" may stand beside another food in the ending.
    "cooking": [text.replace("{food.last}", "{food.pot}") for text in SENTENCES["cooking"]],
}

RULES = WORDS | SENTENCES | SONG
UNIQUE = frozenset({"object"})  # the rules whose words are chosen once in a tale
