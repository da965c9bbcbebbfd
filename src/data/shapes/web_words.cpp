#include <algorithm>
#include <cmath>
#include <sstream>

#include <src/data/shapes/web_words.h>
#include <tessera/base/text.h>

namespace tessera::shapes {
namespace {

// Returns the relative frequency of the word with this rank. Uses only *, / and sqrt, because their results are the same on every machine.
double weight(double rank, double steepness) {
  return steepness == WordList::kSynonyms ? 1 / (rank * std::sqrt(rank)) : 1 / rank;
}

// Makes word lists of a text in which | separates them.
std::vector<WordList> word_lists(std::string_view text, double steepness = WordList::kZipf) {
  std::vector<WordList> out;
  for (const std::string& words : split(text, '|')) out.emplace_back(words, steepness);
  return out;
}

}  // namespace

WordList::WordList(const std::string& words, double steepness) {
  std::istringstream in(words);
  for (std::string word; in >> word;) words_.push_back(word);
  double total = 0;
  for (std::size_t i = 0; i < words_.size(); ++i) ends_.push_back(total += weight(static_cast<double>(i + 1), steepness));
  for (double& end : ends_) end /= total;
}

const std::string& WordList::at(double number) const {
  const auto found = std::upper_bound(ends_.begin(), ends_.end(), number);
  return found == ends_.end() ? words_.back() : words_[static_cast<std::size_t>(found - ends_.begin())];
}

const WordList& shape_words(int shape) {
  static const std::vector<WordList> lists = word_lists(R"(
circle disc ball dot disk sphere orb button coin wheel plate globe bubble marble pebble bead token lens puck pancake cookie balloon
medallion drum dial lid saucer roundel pellet poker cymbal manhole pizza wafer |
square box block cube tile crate panel window brick frame cushion chessboard napkin parcel carton card slab stamp pixel tablet quadrat toast
chip screen board patch pallet doormat ottoman checkbox cracker coaster |
triangle wedge pyramid pennant tent arrowhead roof slice sail delta nacho trigon samosa tortilla gable prism hanger tepee watermelon bunting
chevron metronome wigwam spike shard |
star starfish asterisk pentagram sparkle starlet pentacle twinkle estrella supernova stella carambola starburst firework pinwheel glitter
comet rosette edelweiss sparkler dahlia aster supergiant urchin burst glint |
cross plus crucifix crossing intersection windmill airplane propeller sword dagger scarecrow signpost crosshair lattice turnstile dragonfly
pinion junction crossroad ambulance helicopter fan quadrant scissors windvane ship |
diamond rhombus kite gem jewel lozenge gemstone crystal rhomb solitaire harlequin facet baseball argyle earring pendant brilliant stingray
carat ace octahedron |
ring hoop donut bagel bracelet tire washer halo wreath loop annulus torus bangle gasket lifebelt doughnut circlet collar tiara porthole
headband anklet coil grommet orbit |
heart valentine sweetheart locket love lovebird chocolate cupid amor romance darling strawberry candy crush kiss affection fondness amour
soulmate sweetie cuddle cutie bosom |
hexagon honeycomb hex nut bolt cell beehive benzene hexahedron carbon turtle paver snowflake sixpack pencil crystalline basalt polygon hive
comb pane spanner |
moon crescent banana croissant sickle boomerang horn tusk cashew lunar scimitar claw luna fang smile gondola hammock scythe rind fingernail
eyelash grin)", WordList::kSynonyms);
  return lists.at(at(shape));
}

const WordList& color_words(int color) {
  static const std::vector<WordList> lists = word_lists(R"(
red crimson scarlet ruby cherry cardinal vermilion tomato maroon burgundy carmine garnet rust blood lipstick paprika cranberry rosewood
chili lava poppy |
orange tangerine amber apricot pumpkin mandarin carrot copper papaya marigold persimmon cantaloupe clementine peach mango sienna nectarine
ginger coppery |
yellow golden lemon mustard canary sunny blond butter gold daffodil honey saffron corn maize lemony dandelion sunflower custard primrose
topaz |
green emerald lime olive jade mint fern avocado pine sage shamrock leafy pistachio basil malachite pickle grass cucumber kiwi viridian
spinach celadon |
cyan turquoise aqua teal aquamarine azure lagoon glacier cerulean icy curacao pool verdigris seafoam capri robin menthol tiffany |
blue navy cobalt sapphire royal indigo ultramarine denim bluish delft ocean marine lapis yale oxford persian zaffre bluebell |
purple violet plum lavender grape eggplant mauve amethyst lilac aubergine mulberry orchid wine byzantium heather purplish mulled tyrian
thistle wisteria |
pink rose magenta fuchsia salmon blush bubblegum flamingo coral rosy raspberry carnation cerise peony taffy pinkish ballerina sakura
)", WordList::kSynonyms);
  return lists.at(at(color));
}

const WordList& texture_words(int texture) {
  static const std::vector<WordList> lists = word_lists(R"(
plain solid smooth flat uniform simple even unpatterned monochrome bare blank unmarked clean pure unadorned undecorated basic seamless
unprinted mono untextured |
striped banded lined streaked pinstriped stripy ribbed zebra barred grooved corrugated ruled furrowed veined hooped slatted pleated fluted |
dotted spotted speckled freckled polka dappled pitted studded dotty spotty flecked stippled ladybird leopard pimpled peppered beaded
sprinkled dimpled perforated |
checkered checked tiled plaid chequered gingham tartan gridded checky quilted mosaic squared patchwork latticed tessellated vichy
houndstooth parquet crosshatched)", WordList::kSynonyms);
  return lists.at(at(texture));
}

const WordList& size_words(int size) {
  static const std::vector<WordList> lists = word_lists(R"(
small little tiny mini miniature petite wee minute compact diminutive microscopic teeny toy baby pocket undersized slight bitty lilliputian
dwarf |
medium midsize average mid moderate regular normal middling standard ordinary intermediate halfway typical modest |
large big huge giant enormous massive great jumbo gigantic oversized colossal immense vast mighty mammoth hulking towering monumental
titanic whopping)", WordList::kSynonyms);
  return lists.at(at(size));
}

const WordList& backdrop_words(Tone tone, Backdrop backdrop) {
  // first the lists for light backgrounds, then those for gray and for dark ones
  static const std::vector<WordList> lists = word_lists(R"(
paper canvas wall plaster linen porcelain whiteboard tablecloth bedsheet chalk enamel studio parchment cardboard napkins ceramic ivory
alabaster vinyl ceiling fridge bathtub envelope notebook apron pillow |
horizon sunrise beach sky daybreak dawn shore seaside coast skylight runway dunes meadow riviera boardwalk terrace balcony promenade
lighthouse sailboat bay cove island atoll spotlight lampshade |
sand snow sugar salt flour rice oatmeal powder frost sawdust sandpaper popcorn desert stucco sandstone limestone couscous hail sesame
confetti wheat barley cornmeal |
clouds mist steam foam cotton cream milk fleece cloud froth marshmallow meringue feathers suds yogurt vapor blossoms lace dew whipped surf
petals cushions bubbles porridge |
concrete slate cement sidewalk steel pavement driveway garage aluminum countertop locker pewter zinc tin office corridor elevator parking
hallway basketball laboratory counter filing clinic bunker |
road river lake harbor pier bridge airport highway platform station wharf marina canal dam rooftop skyline quay jetty estuary reservoir
fjord ferry overpass subway |
gravel ash granite static wool carpet felt tweed grit rubble stone moss terrazzo shingle pumice cobblestone rug tarpaulin newspaper screed
flint lint graphite fleabane tinsel |
smoke haze storm drizzle clay mud puddle dust exhaust swamp marsh pond thunderclouds geyser avalanche boulders pigeons elephants silt quarry
rapids whirlpool glaciers chimney |
blackboard asphalt velvet ebony tarmac chalkboard blacktop leather piano stage cellar curtain basement closet theater cinema vault briefcase
oven stove tuxedo limousine crypt dungeon |
twilight nightfall tunnel sunset alley valley canyon cliff volcano mountain cave mine cavern crater ravine abyss gorge ridge planetarium
observatory galaxy cosmos space nightclub |
soil coal coffee soot peat mulch pepper cinders dirt compost charcoal tar gunpowder cocoa blackberries caviar raisins lentils slag turf |
shadows forest jungle ink oil woods thicket grove undergrowth ivy hedge orchard vineyard rainforest garden seaweed reef depths aquarium
bonfire campfire nebula grotto molasses)");
  return lists.at(4 * at(tone) + at(backdrop));
}

const WordList& time_words(Tone tone) {
  static const std::vector<WordList> lists = word_lists(R"(
noon morning daylight sunshine summer midday breakfast sunlight lunchtime brightness heat july june august spring april glare afternoon may
sunday picnic brunch holiday vacation daytime |
rain winter autumn overcast november february fog cold wind cloudy march october wednesday monday snowfall downpour breeze sleet gloom
tuesday rainfall frostbite dampness rush |
night midnight evening darkness eclipse moonlight candlelight dinner bedtime halloween december blackout saturday starlight supper nighttime
sleepover lamplight curfew friday firelight backstage neon torchlight insomnia)");
  return lists.at(at(tone));
}

const WordList& count_words(std::size_t count) {
  static const std::vector<WordList> lists = word_lists(R"(
single one lone solo sole individual alone only unique solitary |
two pair couple duo both double twin twins twosome dual |
three trio triple trinity threesome triplet triad third triplets |
four quartet quad foursome quadruple quartets several fourfold |
five quintet handful quintuple pentad fivesome |
six sextet many numerous dozen lots sixfold)");
  return lists.at(std::min<std::size_t>(count, 6) - 1);
}

const WordList& topic_words(Topic topic) {
  // one list for each Topic, in the order of the enum
  static const std::vector<WordList> lists = word_lists(R"(
new best beautiful vintage cute modern old cool nice lovely handmade classic original free easy fun amazing perfect elegant stylish fancy
cheap rare happy funny fresh unusual pretty awesome colorful bright shiny glossy matte soft hard rustic antique luxury premium custom
personalized wonderful gorgeous charming delightful adorable sweet fine rough smart clever curious strange odd weird quirky playful bold
gentle calm quiet loud proud brave shy lazy sleepy busy tidy messy dusty rusty dirty broken cracked worn faded used secondhand refurbished
recycled organic natural artificial fake genuine authentic traditional contemporary retro futuristic minimal abstract geometric decorative
ornamental festive romantic magical mysterious mystical legendary famous popular trendy fashionable exclusive limited special official
professional amateur experimental creative artistic educational scientific technical practical useful handy portable foldable adjustable
waterproof durable sturdy fragile delicate lightweight heavy hollow chunky slim sleek curvy angular symmetric crooked tilted upright
spinning rolling bouncing glowing sparkling gleaming shimmering translucent transparent opaque metallic pearly satin silky fuzzy fluffy
furry hairy sticky slippery wet dry crisp crunchy juicy tasty delicious spicy sour bitter salty ripe raw baked frozen melted warm hot chilly
cosy cozy comfortable homely humble noble majestic epic heroic tragic comic dramatic poetic musical lyrical dreamy surreal psychedelic
cosmic galactic alien robotic digital virtual animated cartoonish printed embroidered knitted woven carved sculpted molded welded polished
lacquered varnished gilded engraved etched embossed stamped stitched sewn folded inflated wrapped boxed bundled stacked scattered lonely
friendly cheerful grumpy angry jolly merry silly naughty sacred haunted enchanted forgotten ancient medieval victorian baroque gothic
nautical tropical alpine nordic oriental rural urban suburban local imported domestic foreign secret hidden favorite beloved awkward casual
formal humongous spare temporary permanent seasonal |
wooden metal glass plastic rubber felted brass bronze iron stainless silver chrome titanium bamboo oak maple walnut cherrywood birch cedar
teak mahogany pinewood cork wicker rattan straw papier woolen silk leathern suede nylon polyester acrylic resin epoxy silicone latex foamy
styrofoam clayey terracotta earthenware stoneware granitic quartz onyx opal pearl shell bone antler wax soap ice chocolatey gingerbread
jelly gummy dough bread cheese marzipan fabric cloth yarn crochet lego magnetic brickwork stony sandy earthen grassy mossy floral feathered
fur velour corduroy flannel jute hemp burlap raffia tinplate fiberglass plywood veneer laminate plexiglass mirror mirrored holographic led
solar electric battery wired paperclip origami macrame enameled galvanized aluminium lacquer tweedy rubbery plush glassy woody pebbly
velvety leathery papery chalky waxy |
man woman girl boy mother father grandmother grandfather child kid sister brother aunt uncle cousin neighbor friend artist painter designer
photographer teacher student pupil doctor nurse farmer baker chef cook waiter barber tailor carpenter plumber electrician mechanic engineer
architect builder driver pilot sailor captain soldier officer policeman fireman judge lawyer clerk banker accountant manager boss secretary
president mayor king queen prince princess knight wizard witch pirate clown magician juggler acrobat dancer singer drummer guitarist pianist
violinist composer writer poet author editor journalist reporter actor actress director producer model athlete runner swimmer cyclist skater
surfer climber hiker tourist traveler guide explorer astronaut scientist chemist physicist biologist geologist mathematician programmer
hacker gamer blogger collector dealer merchant seller buyer customer shopper client guest visitor host stranger lady gentleman guy dude
teenager toddler infant grandma grandpa mom dad nephew niece roommate classmate colleague coach referee gardener florist fisherman hunter
shepherd cowboy miner potter weaver jeweler blacksmith locksmith librarian curator monk nun priest pilgrim hermit hero villain robot ghost
mermaid fairy elf santa |
emma noah olivia liam ava mia lucas sophia ethan isabella logan amelia mason charlotte oliver harper elijah evelyn james abigail benjamin
emily alexander ella michael elizabeth daniel camila henry jackson scarlett sebastian victoria aiden aria matthew grace samuel chloe david
penelope joseph riley carter layla owen lily wyatt nora john zoey jack eleanor luke hannah anthony lillian isaac addison dylan aubrey leo
ellie julian natalie ryan leah jaxon savannah nathan brooklyn aaron lucy charles paisley thomas skylar caleb anna josh bella adam claire
peter audrey simon alice oscar ruth felix clara hugo ida max greta otto frida karl ingrid sven astrid lars pablo maria jose carmen luis
elena diego rosa marco giulia paolo francesca luca chiara pierre marie jean sophie hiroshi yuki kenji akiko wei ling mei raj priya arjun
ananya omar fatima ali leila ivan olga boris natasha kofi ama |
paris london tokyo berlin rome madrid vienna prague moscow york chicago boston seattle denver austin dallas houston miami atlanta toronto
montreal vancouver mexico havana lima bogota rio santiago lisbon porto barcelona valencia seville milan venice florence naples athens
istanbul cairo nairobi lagos accra dakar casablanca tunis jerusalem dubai mumbai delhi kolkata chennai colombo bangkok hanoi saigon manila
jakarta singapore beijing shanghai taipei seoul osaka kyoto sapporo sydney melbourne perth auckland wellington honolulu anchorage reykjavik
oslo stockholm copenhagen helsinki tallinn riga vilnius warsaw krakow budapest bucharest sofia belgrade zagreb ljubljana zurich geneva basel
munich hamburg cologne frankfurt dresden leipzig amsterdam rotterdam brussels antwerp bruges dublin edinburgh glasgow manchester liverpool
cambridge bath brighton cornwall nagoya tehran baghdad beirut damascus ankara tbilisi yerevan baku almaty tashkent kabul karachi lahore
kathmandu dhaka yangon vientiane canberra hobart darwin adelaide brisbane windhoek harare lusaka kampala kigali luanda quito caracas
asuncion montevideo managua guatemala panama kingston nassau orlando memphis nashville detroit cleveland pittsburgh philadelphia baltimore
washington richmond |
found made painted bought sold drew built designed saw collected photographed carried holds wants likes loves hates needs shows brings sends
wraps opens paints draws sketches builds carves cuts folds stacks sorts counts arranges balances juggles throws catches kicks rolls pushes
pulls lifts drops hides finds keeps borrows lends steals buys sells trades offers presents displays hangs mounts glues tapes nails welds
repairs fixes cleans polishes washes dusts sweeps decorates ties labels names describes explains studies measures compares photographs films
records remembers imagines dreams invents discovers chooses picks admires watches examines inspects ignores touches holding carrying showing
selling building making wearing eating baking cooking |
sitting standing lying resting leaning hanging floating hovering placed seen drawn waiting sleeping hiding shining stuck posed perched
parked balanced balancing tilting turning swinging drifting gliding flying falling climbing jumping landing moving rolled pinned glued
mounted fixed attached located positioned situated arranged displayed shown visible dropped tossed thrown lodged wedged tucked nestled
propped laid planted rooted anchored moored docked stationed centered aligned squeezed crammed crowded peeking looking staring smiling
dancing spun twirling wobbling trembling shaking bobbing swaying rocking sliding slipping creeping crawling marching rising sinking setting
looming lurking lingering dangling drooping |
photo picture image painting drawing sketch print illustration cartoon icon logo sticker wallpaper banner sign label postcard greeting
template pattern clipart vector artwork mural graffiti collage doodle diagram chart map render rendering animation screenshot snapshot
closeup portrait landscape scene view shot portfolio tattoo emblem badge crest mug shirt hoodie cap tote pillowcase blanket quilt tapestry
sculpture figurine puzzle game tutorial craft worksheet flashcard coloring lithograph engraving woodcut watercolor pastel thumbnail avatar
cover brochure leaflet flyer calendar magnet pin decal stencil storyboard panorama blueprint floorplan prototype hologram slideshow |
birthday wedding christmas easter party anniversary graduation festival carnival parade concert exhibition fair market show contest
competition tournament match race lesson class workshop lecture meeting conference interview project homework exam experiment hobby gift
decoration kitchen bedroom bathroom nursery classroom kindergarten school college museum gallery store restaurant cafe bakery hotel hospital
church temple library playground park zoo circus farm barn factory warehouse camping travel cruise tour honeymoon reunion ceremony funeral
baptism thanksgiving newyear passover ramadan diwali hanukkah fundraiser auction charity election strike launch premiere rehearsal |
cat dog horse cow pig sheep goat rabbit mouse rat hamster squirrel fox wolf bear lion tiger monkey gorilla giraffe hippo rhino camel deer
moose kangaroo koala panda penguin owl eagle hawk parrot crow sparrow swan duck goose chicken rooster turkey peacock ostrich frog toad snake
lizard crocodile tortoise shark whale dolphin octopus squid crab lobster shrimp snail worm spider ant bee wasp butterfly moth beetle ladybug
cricket grasshopper dinosaur dragon unicorn phoenix egg bacon ham sausage burger sandwich pasta noodle soup salad potato onion garlic
cabbage lettuce broccoli cauliflower bean pea mushroom apple pear pineapple coconut fig date almond cake pie muffin waffle jam tea espresso
juice lemonade cocktail whiskey tulip daisy iris jasmine lotus cactus palm willow elm spruce clover football soccer tennis golf hockey rugby
volleyball badminton bowling boxing karate judo yoga skiing snowboard sailing rowing fishing hunting hiking chess guitar violin cello flute
trumpet trombone saxophone clarinet harp keyboard car truck van bus train tram bicycle motorcycle scooter tractor rocket satellite submarine
canoe kayak yacht castle palace tower cottage mansion skyscraper igloo lamp candle lantern chair sofa table desk shelf clock watch glasses
hat scarf glove sock shoe boot belt bag wallet umbrella backpack suitcase camera radio television computer printer microscope telescope
compass hammer screwdriver wrench drill shovel rake bucket broom mop sponge spoon fork knife bowl kettle teapot jar bottle basket eraser
ruler crayon marker dictionary alphabet grammar algebra calculus geometry history biology chemistry physics astronomy geography philosophy
psychology economics politics religion |
stock download sale shop buy online price shipping delivery discount offer deal review blog news article page website link video collection
series volume edition part number code item product brand quality size color set pack kit bundle piece unit sample version update release
preview full hd wallpapers background desktop mobile phone android iphone laptop app software file format png jpg pdf svg resolution pixels
royalty license copyright commercial use credit editorial isolated high low top trending viral daily weekly monthly archive forum comment
share follow like subscribe pinterest instagram ideas inspiration tips guidebook howto diy steps beginners kids adults men women teens
family home decor interior outdoor indoor furniture accessories jewelry clothing fashion outfit costume style trend trends design designs
art arts crafts supplies tools materials)");
  return lists.at(at(topic));
}

}  // namespace tessera::shapes
