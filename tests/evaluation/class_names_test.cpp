#include "src/evaluation/tasks/candidates.h"
#include "tests/evaluation/plain_data.h"

namespace tessera {
namespace {

class TasksOnClassNames : public Tasks {};

TEST_F(TasksOnClassNames, ProbesMatchTheClassesOfBothDataByName) {
  const auto train = std::make_shared<PlainSource>();
  context.train_source = train;
  source->names = {"background", "bright", "dark"};
  source->change = [](std::int64_t, Sample& sample) { sample.label = sample.label == 0 ? 2 : 1; };
  for (const char* task : {"{name: linear_probe, l2: 0.0001}", "{name: knn, k: 1}"})
    EXPECT_EQ(run(task).metrics.at(0), (Metric("top1", 1.0))) << task;
  EXPECT_EQ(error_of("{name: segmentation_probe}"),
            "segmentation_probe: some classes have other numbers in the training data, plain pictures, than in the test data, plain "
            "pictures");
  train->names = {"dark", "background"};
  EXPECT_EQ(error_of("{name: knn, k: 1}"),
            "plain pictures has a sample of class 1, bright, but no class of plain pictures has this name; their classes are matched by "
            "name");
}

TEST_F(TasksOnClassNames, RejectMissingClassNamesBeforeMeasuring) {
  EXPECT_EQ(check("{name: zero_shot}"), "no error");
  source->names.clear();
  for (const std::string name : {"zero_shot", "segmentation"}) {
    EXPECT_EQ(check("{name: " + name + "}"),
              "plain pictures has no class names: set " + name +
                  ".classes to a list or a file, or `classes` of the data to a file with one name per line");
    EXPECT_EQ(check("{name: " + name + ", classes: [dark, bright, wall]}"), "no error");
  }
}

TEST_F(TasksOnClassNames, RejectLabelsAndMasksBeyondTheClassNames) {
  EXPECT_EQ(error_of("{name: zero_shot, classes: [one]}"),
            "plain pictures has a sample of class 1, but there are only 1 class names (0 to 0): list them all in "
            "zero_shot.classes, or in `classes` of the data");
  EXPECT_EQ(error_of("{name: segmentation, classes: [one]}"),
            "segmentation.classes lists 1 class, but plain pictures has 3: list one for each, in the data's order");
  EXPECT_EQ(check("{name: zero_shot, classes: [one]}"), error_of("{name: zero_shot, classes: [one]}"));
  EXPECT_EQ(check("{name: segmentation, classes: [one]}"), error_of("{name: segmentation, classes: [one]}"));
}

TEST_F(TasksOnClassNames, UseTheClassesOfTheTaskIfLabelsAreNames) {
  const auto by_number = run("{name: zero_shot}").metrics;
  source->names.clear();
  source->change = [](std::int64_t index, Sample& sample) {
    sample.label = -1;
    sample.class_name = index % 2 == 0 ? "dark" : "bright";
  };
  EXPECT_EQ(check("{name: zero_shot, classes: [dark, bright]}"), "no error");
  EXPECT_EQ(run("{name: zero_shot, classes: [dark, bright]}").metrics, by_number);
  EXPECT_EQ(check("{name: zero_shot, classes: [dark, white]}"),
            "plain pictures has a sample of class \"bright\", which is not among zero_shot.classes (2): list it there");
}

TEST_F(TasksOnClassNames, MatchTheClassesOfTheTaskByName) {
  const auto own = run("{name: zero_shot}").metrics;
  EXPECT_EQ(run("{name: zero_shot, classes: [bright, dark]}").metrics, own);
  EXPECT_EQ(run("{name: zero_shot, classes: [white, black]}").samples, 6) << "other words are taken in the order of the source";
  EXPECT_EQ(check("{name: zero_shot, classes: [bright]}"),
            "plain pictures has a sample of class \"dark\", which is not among zero_shot.classes (1): list it there");
}

TEST_F(TasksOnClassNames, SayWhichClassGotWhichName) {
  source->names = {"dark", "bright"};
  source->background = -1;
  EXPECT_TRUE(run("{name: zero_shot}").notes.at(0).starts_with("top5 is 100% for any model")) << "no name was replaced";
  const TaskResult in_order = run("{name: zero_shot, topk: [1], classes: [a Dark one, the bright picture]}");
  EXPECT_EQ(in_order.notes,
            (std::vector<std::string>{
                "names belong to classes by their position: dark -> a Dark one, bright -> the bright picture"}));
  const TaskResult words = run("{name: zero_shot, topk: [1], classes: [the bright picture, a Dark one]}");
  EXPECT_EQ(words.notes, (std::vector<std::string>{
                             "classes are matched by their words: dark -> a Dark one, bright -> the bright picture"}));
  EXPECT_EQ(words.metrics, in_order.metrics);
  EXPECT_EQ(run("{name: zero_shot, topk: [1], classes: [white, black]}").notes,
            (std::vector<std::string>{"names belong to classes by their position: dark -> white, bright -> black"}));
  EXPECT_EQ(words.chance, (std::map<std::string, double>{{"top1", 0.5}, {"mean_per_class", 0.5}}));
}

TEST_F(TasksOnClassNames, CaseAndPunctuationOfClassNamesDoNotMatter) {
  source->names = {"sea_shore", "dog"};
  source->background = -1;
  EXPECT_EQ(run("{name: zero_shot, topk: [1], classes: [Dog, cat, sea shore]}").notes,
            (std::vector<std::string>{"classes are matched by their names: sea_shore -> sea shore, dog -> Dog"}));
}

TEST_F(TasksOnClassNames, NamesWithinOtherNamesAreNotConfused) {
  source->names = {"dog", "hot dog"};
  source->background = -1;
  EXPECT_EQ(run("{name: zero_shot, topk: [1], classes: [a hot dog, a dog]}").notes,
            (std::vector<std::string>{"classes are matched by their words: dog -> a dog, hot dog -> a hot dog"}));
  source->names = {"fire", "no fire"};
  EXPECT_EQ(run("{name: zero_shot, topk: [1], classes: [smoke and fire, without fire]}").notes,
            (std::vector<std::string>{
                "names belong to classes by their position: fire -> smoke and fire, no fire -> without fire"}))
      << "no name contains \"no fire\"";
}

TEST_F(TasksOnClassNames, AFallBackToPositionsIsAWarning) {
  source->names = {"dark", "bright"};
  source->background = -1;
  const TaskResult guessed = run("{name: zero_shot, topk: [1], classes: [white, black]}");
  EXPECT_EQ(guessed.warnings, guessed.notes);
  EXPECT_TRUE(run("{name: zero_shot, topk: [1], classes: [a Dark one, the bright picture]}").warnings.empty());
  EXPECT_TRUE(run("{name: zero_shot, topk: [1], classes: [bright, dark]}").warnings.empty());
}

TEST(MatchNames, ClassesOfTheSameNameStayApart) {
  using Places = std::vector<std::int64_t>;
  const std::vector<std::string> names = {"cat", "box", "box", "dog"};
  EXPECT_FALSE(match_names(names, names).by_name);
  EXPECT_EQ(match_names(names, names).note, "");
  EXPECT_EQ(match_names({"dog", "box", "cat", "box"}, names).place, (Places{2, 1, 3, 0}));
  const NamedClasses renamed = match_names({"cat", "box", "carton", "dog"}, names);
  EXPECT_FALSE(renamed.by_name) << "the second box has the name carton";
  EXPECT_TRUE(renamed.guessed);
  EXPECT_EQ(match_names({"box", "cat", "dog"}, names).place, (Places{1, 0, 0, 2})) << "the task names both classes box";
}

TEST(MatchNames, WordsMatchTheNamesThatAreLeft) {
  using Places = std::vector<std::int64_t>;
  const std::vector<std::string> names = {"cat", "dog", "bird"};
  EXPECT_EQ(match_names({"a photo of a dog", "cat", "a bird"}, names).place, (Places{1, 0, 2}));
  const NamedClasses moved = match_names({"cat", "a bird", "a dog"}, names);
  EXPECT_EQ(moved.place, (Places{0, 2, 1})) << "not by position, although cat has its own";
  EXPECT_EQ(moved.note, "classes are matched by their names and words: cat -> cat, dog -> a dog, bird -> a bird");
  EXPECT_EQ(match_names({"hot dog", "house", "cat", "tree"}, names).place, (Places{2, -1, -1}))
      << "a longer list may lack a class";
}

TEST_F(TasksOnClassNames, ProbesSayWhichClassesTheyCompareByNumber) {
  auto train = std::make_shared<PlainSource>();
  train->names = {"cat", "dog", "background"};
  context.train_source = train;
  EXPECT_EQ(run("{name: knn, k: 1}").notes.at(0),
            "test and training data: names belong to classes by their position: dark -> cat, bright -> dog, background "
            "-> background");
}

}  // namespace
}  // namespace tessera
