// Tests the readers of benchmarks in which each item has correct and wrong options. The tests write files in the layouts of the published
// benchmark files.

#include <algorithm>

#include <gtest/gtest.h>

#include "src/data/sources/option_set.h"
#include "tests/data/fake_source.h"
#include "tests/data/temporary_folder.h"
#include <tessera/base/text.h>

namespace tessera {
namespace {

using Texts = std::vector<std::string>;
using Numbers = std::vector<std::int64_t>;

class OptionFiles : public FolderTest {
 protected:
  OptionFiles() {
    for (const char* name : {"a.png", "b.png", "sub/c.png", "ex_0_img_0.png", "ex_0_img_1.jpg", "000000000039.jpg"})
      write(std::string("pictures/") + name, test::encode(test::noise(8, 10, 1), ".png"));
  }
  OptionSettings settings(const std::string& layout, const std::string& content, const std::string& name) const {
    write(name, content);
    return {.layout = layout, .annotations = {{path(name)}}, .images = path("pictures")};
  }
  OptionSet read(const std::string& layout, const std::string& content, const std::string& name = "file.json") const {
    return read_options(settings(layout, content, name));
  }
  /// Returns the error message for a file with `content`. Removes the test's folder from the path at the message's beginning.
  std::string error_in(const std::string& layout, const std::string& content,
                       const std::string& name = "file.json") const {
    const OptionSettings given = settings(layout, content, name);
    const std::string message = error_of([&] { read_options(given); });
    const std::size_t place = message.find(folder_.string() + "/");
    return place == std::string::npos ? message : message.substr(place + folder_.string().size() + 1);
  }
  std::string image(const OptionSet& set, std::size_t item, std::size_t number) const {
    return set.images->name_of(set.items.at(item).images.at(number)).substr(path("pictures").size() + 1);
  }
};

TEST_F(OptionFiles, SugarCrepeHasAnObjectOfItemsAndOneKindPerFile) {
  OptionSettings both = settings("sugarcrepe",
                                 R"({"0": {"filename": "a.png", "caption": " a cat ", "negative_caption": "a dog"},
                                     "1": {"filename": "b.png", "caption": "x", "negative_caption": "y"}})",
                                 "swap_obj.json");
  write("add_att.json", R"({"0": {"filename": "a.png", "caption": "c", "negative_caption": "d"}})");
  both.annotations.items.push_back(path("add_att.json"));
  const OptionSet set = read_options(both);
  EXPECT_EQ(set.form, OptionForm::choice);
  ASSERT_EQ(set.items.size(), 3U);
  EXPECT_EQ(set.items[0].texts, (Texts{"a cat", "a dog"}));
  EXPECT_EQ(set.items[0].kind, "swap_obj");
  EXPECT_EQ(set.items[2].kind, "add_att");
  EXPECT_EQ(set.images->size(), 2) << "an image that several items name must be listed once";
  EXPECT_EQ(set.items[2].images, Numbers{0});
  EXPECT_EQ(set.described, "sugarcrepe " + path("swap_obj.json") + " and 1 more files, 3 items");
}

TEST_F(OptionFiles, ArosOrderTasksReorderTheWordsOfEachCaption) {
  write("lexicon.txt", "# nouns and adjectives\nred\ndog\n\nbeach\nball\n");
  OptionSettings given = settings(
      "aro_order",
      R"([{"image": "sub/c.png", "caption": ["A red dog, on the big beach with its ball.", "Dogs!", "the the the the"]},
          {"image": "a.png", "caption": ["red dog"]}, {"image": "b.png", "caption": ["A red dog, on the big beach with its ball."]}])",
      "coco_karpathy_test.json");
  given.lexicon = path("lexicon.txt");
  const OptionSet set = read_options(given);
  EXPECT_EQ(set.skipped, (std::map<std::string, std::int64_t>{{"one_order", 2}}))
      << "a single word and identical words have no other order";
  ASSERT_EQ(set.items.size(), 3U);
  const Texts& texts = set.items[0].texts;
  ASSERT_EQ(texts.size(), 5U);
  EXPECT_EQ(texts[0], "a red dog, on the big beach with its ball") << "lower case, without punctuation";
  EXPECT_EQ(set.items[2].texts, texts) << "equal captions must have equal orders";
  EXPECT_EQ(image(set, 0, 0), "sub/c.png");
  EXPECT_EQ(set.items[1].texts, (Texts{"red dog", "dog red", "dog red"})) << "it has no other words and only one run";
}

TEST_F(OptionFiles, EachOfArosOrderTasksMovesItsWords) {
  write("lexicon.txt", "red\ndog\nbeach\nball\n");
  OptionSettings given = settings(
      "aro_order", R"([{"image": "a.png", "caption": ["a red dog, on the big beach with its ball"]}])", "file.json");
  given.lexicon = path("lexicon.txt");
  const OptionSet set = read_options(given);
  std::vector<Texts> orders;
  for (const std::string& text : set.items.at(0).texts) orders.push_back(split(text, ' '));
  ASSERT_EQ(orders.size(), 5U);
  const auto words = [&](std::size_t order, const Numbers& places) {
    Texts out;
    for (const std::int64_t place : places) out.push_back(orders[order].at(static_cast<std::size_t>(place)));
    return out;
  };
  const auto sorted = [](Texts texts) {
    std::sort(texts.begin(), texts.end());
    return texts;
  };
  const Numbers named = {1, 2, 6, 9}, others = {0, 3, 4, 5, 7, 8};
  EXPECT_EQ(words(1, others), words(0, others)) << "only nouns and adjectives may move";
  EXPECT_EQ(words(2, named), words(0, named)) << "only the other words may move";
  for (const Numbers& run : {Numbers{0, 1, 2}, Numbers{3, 4, 5}, Numbers{6, 7, 8}}) {
    EXPECT_NE(std::search(orders[3].begin(), orders[3].end(), orders[0].begin() + run[0], orders[0].begin() + run[0] + 3),
              orders[3].end())
        << "the words starting at " << words(0, run)[0] << " must move together";
    EXPECT_EQ(sorted(words(4, run)), sorted(words(0, run))) << "the words starting at " << words(0, run)[0] << " must stay in their run";
  }
  for (std::size_t i = 1; i < orders.size(); ++i) {
    EXPECT_NE(orders[i], orders[0]);
    EXPECT_EQ(sorted(orders[i]), sorted(orders[0])) << "no word is lost";
  }
}

TEST_F(OptionFiles, ArosOrderTasksNeedALexicon) {
  const std::string content = R"([{"image": "a.png", "caption": ["a dog"]}])";
  EXPECT_EQ(error_in("aro_order", content),
            "options: lexicon is not set; layout aro_order needs a file of nouns and adjectives, one per line "
            "(" TESSERA_SOURCE_DIR "/configs/lexicons/nouns_adjectives_small.txt has some)");
  OptionSettings given = settings("aro_order", content, "file.json");
  given.lexicon = path("nowhere.txt");
  EXPECT_NE(error_of([&] { read_options(given); }).find("nowhere.txt"), std::string::npos);
}

TEST_F(OptionFiles, SugarCrepePlusPlusHasTwoCorrectTexts) {
  const OptionSet set = read(
      "sugarcrepe_pp", R"([{"id": 0, "filename": "a.png", "caption": "p", "caption2": "q", "negative_caption": "n"}])");
  EXPECT_EQ(set.form, OptionForm::paraphrase);
  EXPECT_EQ(set.items.at(0).texts, (Texts{"p", "q", "n"}));
}

TEST_F(OptionFiles, WinogroundNamesImagesWithoutTheirEnding) {
  const OptionSet set = read(
      "winoground",
      R"({"id": 0, "image_0": "ex_0_img_0", "image_1": "ex_0_img_1", "caption_0": "a b", "caption_1": "b a", "tag": "Noun", "collapsed_tag": "Object"})"
      "\n"
      R"({"id": 1, "image_0": "ex_0_img_1", "image_1": "ex_0_img_0", "caption_0": "c", "caption_1": "d", "tag": "x", "collapsed_tag": "Both"})"
      "\n",
      "examples.jsonl");
  EXPECT_EQ(set.form, OptionForm::pairs);
  ASSERT_EQ(set.items.size(), 2U);
  EXPECT_EQ(image(set, 0, 0), "ex_0_img_0.png");
  EXPECT_EQ(image(set, 0, 1), "ex_0_img_1.jpg");
  EXPECT_EQ(set.items[1].images, (Numbers{1, 0}));
  EXPECT_EQ(set.items[0].kind, "Object");
}

TEST_F(OptionFiles, ColorSwapAndColaArePairs) {
  const OptionSet swapped = read("colorswap",
                                 R"([{"id": 0, "image_1": "images/a.png", "image_2": "images/b.png", "caption_1": "x",
                                      "caption_2": "y", "image_source": "midjourney"}])");
  EXPECT_EQ(swapped.form, OptionForm::pairs);
  EXPECT_EQ(image(swapped, 0, 0), "a.png") << "the folder in its path may be missing";
  const OptionSet cola = read("cola", R"([["https://host/vg/a.png", "x", "https://host/vg/b.png", "y"]])");
  EXPECT_EQ(cola.form, OptionForm::pairs);
  EXPECT_EQ(cola.items.at(0).texts, (Texts{"x", "y"}));
  EXPECT_EQ(image(cola, 0, 1), "b.png");
}

TEST_F(OptionFiles, ValseLeavesOutFoilsThatAnnotatorsRejected) {
  const OptionSet set = read(
      "valse",
      R"({"x_0": {"image_file": "a.png", "caption": "c", "foil": "f", "mturk": {"foil": 0, "caption": 2, "other": 1}},
                                 "x_1": {"image_file": "b.png", "caption": "c", "foil": "f", "mturk": {"foil": 2, "caption": 1, "other": 0}}})",
      "existence.json");
  ASSERT_EQ(set.items.size(), 1U);
  EXPECT_EQ(set.items[0].texts, (Texts{"c", "f"}));
  EXPECT_EQ(set.items[0].kind, "existence");
  EXPECT_EQ(set.skipped.at("not_validated"), 1);
  EXPECT_EQ(set.images->size(), 1) << "no item uses the other image";
}

TEST_F(OptionFiles, AroCropsTheBoxOfEachItem) {
  const OptionSet set = read(
      "aro",
      R"([{"image_path": "a.png", "bbox_x": 2, "bbox_y": 1, "bbox_w": 5, "bbox_h": 4, "relation_name": "behind", "true_caption": "t", "false_caption": "f"},
          {"image_path": "a.png", "bbox_x": 7, "bbox_y": 0, "bbox_w": 9, "bbox_h": 9, "attributes": ["red", "old"], "true_caption": "t", "false_caption": "f"},
          {"image_path": "a.png", "bbox_x": 90, "bbox_y": 0, "bbox_w": 9, "bbox_h": 9, "attributes": [], "true_caption": "t", "false_caption": "f"}])");
  ASSERT_EQ(set.images->size(), 3) << "each box must become a separate image";
  const Image whole = test::noise(8, 10, 1), part = set.images->get(0).image;
  EXPECT_EQ(part.height, 4);
  EXPECT_EQ(part.width, 5);
  EXPECT_EQ(part.pixels.at(0), whole.pixels.at(3 * (1 * 10 + 2))) << "row 1, column 2";
  const Image cut = set.images->get(1).image;
  EXPECT_EQ(cut.height, 8) << "the box must be clipped to the image";
  EXPECT_EQ(cut.width, 3);
  EXPECT_EQ(set.items[0].kind, "behind");
  EXPECT_EQ(set.items[1].kind, "red, old");
  EXPECT_EQ(sample_error_of(*set.images, 2),
            "bad_box: sample a.png: the part at row 0, column 90 is outside the image");
}

TEST_F(OptionFiles, WhatsUpHasOptionsInListsOrRows) {
  const OptionSet listed = read(
      "whatsup", R"([{"image_path": "data/controlled_images/a.png", "caption_options": ["r", "w1", "w2", "w3"]}])");
  EXPECT_EQ(listed.form, OptionForm::choice);
  EXPECT_EQ(listed.items.at(0).texts, (Texts{"r", "w1", "w2", "w3"}));
  EXPECT_EQ(listed.items.at(0).set, "") << "a.png names no objects";
  const OptionSet rows = read("whatsup_qa", R"([[39, "r", "w"]])");
  EXPECT_EQ(rows.items.at(0).texts, (Texts{"r", "w"}));
  EXPECT_EQ(image(rows, 0, 0), "000000000039.jpg") << "COCO's file name for image 39";
}

TEST_F(OptionFiles, WhatsUpGroupsImagesOfTheSameObjectsIntoASetOfTwoPairs) {
  const auto item = [](const std::string& name) {
    return R"({"image_path": "data/controlled_images/)" + name + R"(", "caption_options": ["r", "w"]})";
  };
  const OptionSet set =
      read("whatsup", "[" + item("beer-bottle_left_of_chair.jpeg") + "," + item("beer-bottle_on_chair.jpeg") + "," +
                          item("beer-bottle_right_of_chair.jpeg") + "," + item("cup_in-front_of_chair.jpeg") + "," +
                          item("a.png") + "]");
  const auto& items = set.items;
  EXPECT_EQ(items.at(0).set, "beer-bottle chair");
  EXPECT_EQ(items.at(1).set, items[0].set);
  EXPECT_EQ(items.at(2).set, items[0].set);
  EXPECT_EQ(items.at(3).set, "cup chair");
  EXPECT_EQ(items[0].pair, items[2].pair);
  EXPECT_NE(items[0].pair, items[1].pair);
}

TEST_F(OptionFiles, FoilPairsCaptionsWithTheSameId) {
  const OptionSet set = read("foil",
                             R"({"info": {}, "images": [{"id": 7, "file_name": "a.png"}],
          "annotations": [
            {"id": 3, "image_id": 7, "foil": false, "caption": "a bus", "foil_word": "ORIG"},
            {"id": 3, "image_id": 7, "foil": true, "caption": "a car", "foil_word": "car"},
            {"id": 3, "image_id": 7, "foil": true, "caption": "a van", "foil_word": "van"},
            {"id": 4, "image_id": 7, "foil": false, "caption": "alone", "foil_word": "ORIG"}]})");
  ASSERT_EQ(set.items.size(), 2U);
  EXPECT_EQ(set.items[0].texts, (Texts{"a bus", "a car"}));
  EXPECT_EQ(set.items[1].texts, (Texts{"a bus", "a van"}));
  EXPECT_EQ(set.skipped.at("no_pair"), 1);
}

TEST_F(OptionFiles, SvoProbesHasTwoImagesPerSentence) {
  const OptionSet set =
      read("svo_probes",
           "sentence,pos_triplet,neg_triplet,pos_url,neg_url,pos_image_id,neg_image_id,subj_neg,verb_neg,obj_neg\n"
           "\"A girl, standing.\",\"girl,stand,grass\",\"dog,stand,grass\",u,v,a.png,b.png,True,False,False\n"
           "x,y,z,u,v,b.png,a.png,False,False,True\n"
           ",y,z,u,v,b.png,a.png,False,True,False\n",
           "svo_probes.csv");
  EXPECT_EQ(set.form, OptionForm::choice);
  ASSERT_EQ(set.items.size(), 2U);
  EXPECT_EQ(set.items[0].texts, Texts{"A girl, standing."});
  EXPECT_EQ(set.items[0].images, (Numbers{0, 1}));
  EXPECT_EQ(set.items[0].kind, "subject");
  EXPECT_EQ(set.items[1].kind, "object");
  EXPECT_EQ(set.skipped.at("no_text"), 1);
}

TEST_F(OptionFiles, MmvpPairsConsecutiveRows) {
  write("pictures/Color/1.jpg", "x");
  const std::string rows = "Question ID,Type,Statement\n1,Color,a red cup\n2,Color,a blue cup\n";
  const OptionSet set = read("mmvp", rows, "Questions.csv");
  EXPECT_EQ(set.form, OptionForm::pairs);
  EXPECT_EQ(set.items.at(0).texts, (Texts{"a red cup", "a blue cup"}));
  EXPECT_EQ(set.items.at(0).kind, "Color");
  EXPECT_EQ(image(set, 0, 0), "Color/1.jpg");
  EXPECT_EQ(error_in("mmvp", rows + "3,Color,odd\n", "Questions.csv"),
            "Questions.csv: its last row has no partner; every two rows are a pair");
}

TEST_F(OptionFiles, NegBenchNumbersItsRightCaption) {
  const std::string header = "image_path,correct_answer,caption_0,caption_1,caption_2,caption_3,correct_answer_template\n";
  const OptionSet set = read("negbench", header + "data/coco/a.png,2,w,x,\"a dog, but no cat\",y,hybrid\nb.png,0,no dog,x,y,z,negative\n",
                             "COCO_val_mcq.csv");
  EXPECT_EQ(set.form, OptionForm::choice);
  ASSERT_EQ(set.items.size(), 2U);
  EXPECT_EQ(set.items[0].texts, (Texts{"a dog, but no cat", "w", "x", "y"}));
  EXPECT_EQ(set.items[0].kind, "hybrid");
  EXPECT_EQ(image(set, 0, 0), "a.png");
  EXPECT_EQ(set.items[1].texts, (Texts{"no dog", "x", "y", "z"}));
  const OptionSet binary = read("negbench", "image_path,caption_0,caption_1,correct_answer\na.png,x,y,1\n", "binary.csv");
  EXPECT_EQ(binary.items.at(0).texts, (Texts{"y", "x"}));
  EXPECT_EQ(binary.items.at(0).kind, "");
  EXPECT_EQ(error_in("negbench", header + "a.png,4,w,x,y,z,hybrid\n", "a.csv"), "a.csv:2: its right option is 4, but there are 4 options");
  EXPECT_EQ(error_in("negbench", header + "a.png,-1,w,x,y,z,hybrid\n", "a.csv"),
            "a.csv:2: correct_answer: expected the number of a caption, got -1");
}

TEST_F(OptionFiles, SpecHasTextsForImagesAndImagesForTexts) {
  write("pictures/count/one/0.jpg", "x");
  write("pictures/count/one/1.jpg", "x");
  const OptionSet texts = read("spec", R"([{"query": "one/0.jpg", "keys": ["two dogs", "one dog"], "label": 1}])", "count/image2text.json");
  EXPECT_EQ(texts.items.at(0).texts, (Texts{"one dog", "two dogs"}));
  EXPECT_EQ(texts.items[0].kind, "count");
  EXPECT_EQ(image(texts, 0, 0), "count/one/0.jpg");
  const OptionSet images =
      read("spec", R"([{"query": "one dog", "keys": ["one/1.jpg", "one/0.jpg"], "label": 1}])", "count/text2image.json");
  EXPECT_EQ(images.form, OptionForm::choice);
  EXPECT_EQ(images.items.at(0).texts, Texts{"one dog"});
  EXPECT_EQ(image(images, 0, 0), "count/one/0.jpg");
  EXPECT_EQ(image(images, 0, 1), "count/one/1.jpg");
  EXPECT_EQ(error_in("spec", R"([{"query": "one/0.jpg", "keys": ["x", "y"], "label": 2}])", "count/image2text.json"),
            "count/image2text.json: item 0: its right option is 2, but there are 2 options");
  EXPECT_EQ(error_in("spec", R"([{"query": "one/0.jpg", "keys": ["x", "y"]}])", "count/image2text.json"),
            "count/image2text.json: item 0: label: expected the number of an option");
  EXPECT_EQ(error_in("spec", "[]", "count/x.json"), "count/x.json: layout spec has files named image2text.json and text2image.json");
}

TEST_F(OptionFiles, VlCheckListComparesTheFirstRightTextWithTheFirstWrongOne) {
  const OptionSet set =
      read("vl_checklist", R"([["sub/c.png", {"POS": ["tiled floor", "floor"], "NEG": ["sandy floor"]}], ["a.png", {"POS": [], "NEG": ["x"]}]])",
           "vaw/material.json");
  ASSERT_EQ(set.items.size(), 1U);
  EXPECT_EQ(set.items[0].texts, (Texts{"tiled floor", "sandy floor"}));
  EXPECT_EQ(set.items[0].kind, "vaw_material");
  EXPECT_EQ(image(set, 0, 0), "sub/c.png");
  EXPECT_EQ(set.skipped.at("no_text"), 1);
  EXPECT_EQ(error_in("vl_checklist", R"([["a.png", {"POS": ["x"]}]])", "vaw/material.json"),
            "vaw/material.json: item 0: has no NEG; layout vl_checklist has POS and NEG, this item has POS");
  EXPECT_EQ(error_in("vl_checklist", R"([["a.png"]])", "vaw/material.json"),
            "vaw/material.json: item 0: has no POS; layout vl_checklist has POS and NEG, this item has null");
}

TEST_F(OptionFiles, UserFilesHaveOneImageOrSeveral) {
  const OptionSet texts =
      read("options", R"([{"image": "a.png", "options": ["right", "wrong", "worse"], "kind": "count"}])");
  EXPECT_EQ(texts.form, OptionForm::choice);
  EXPECT_EQ(texts.items.at(0).kind, "count");
  const OptionSet images = read("options", R"([{"image": ["sub/c.png", "a.png", "b.png"], "options": "c"}])");
  EXPECT_EQ(images.form, OptionForm::choice);
  EXPECT_EQ(images.items.at(0).images.size(), 3U);
  EXPECT_EQ(image(images, 0, 0), "sub/c.png");
}

TEST_F(OptionFiles, ASingleLineIsAnItem) {
  const std::string line = R"({"filename": "a.png", "caption": "a cat", "negative_caption": "a dog"})";
  const OptionSet set = read("sugarcrepe", line + "\n");
  ASSERT_EQ(set.items.size(), 1U);
  EXPECT_EQ(set.items[0].texts, (Texts{"a cat", "a dog"}));
}

TEST_F(OptionFiles, AFileInAnotherLayoutIsReportedWithItsContent) {
  EXPECT_EQ(
      error_in("winoground", R"([{"filename": "a.png", "caption": "x", "negative_caption": "y"}])"),
      "file.json: item 0: has no caption_0; layout winoground has image_0, image_1, caption_0 and caption_1, this item "
      "has caption, filename and negative_caption");
  EXPECT_EQ(error_in("cola", R"([["a.png", "x"]])"),
            "file.json: item 0: has no 3; layout cola has 0, 2, 1 and 3, this item has a list of 2");
  EXPECT_EQ(
      error_in("sugarcrepe", "{\"0\": 5}"),
      "file.json: 0: has no caption; layout sugarcrepe has filename, caption and negative_caption, this item has number");
  EXPECT_EQ(error_in("sugarcrepe", "[1, 2"),
            "file.json:1: is not JSON; expected a list of items, an object of items, or one item per line");
  EXPECT_EQ(error_in("sugarcrepe", "\"text\""), "file.json: expected a list or an object of items, got string");
  EXPECT_EQ(error_in("sugarcrepe", "[]"), "file.json: holds no items of layout sugarcrepe");
  EXPECT_EQ(error_in("foil", R"({"images": [], "annotations": [{"id": 1, "image_id": 2, "caption": "x"}]})"),
            "file.json: annotations[0]: has no foil; expected true or false");
  EXPECT_EQ(error_in("svo_probes", "sentence,pos_image_id\nx,1\n"),
            "file.json: has no column neg_image_id (layout svo_probes); its columns are: sentence and pos_image_id");
}

TEST_F(OptionFiles, ItemsOfUnsupportedOrMixedFormsAreReported) {
  EXPECT_EQ(
      error_in("options", R"([{"image": "a.png", "options": ["only"]}])"),
      "file.json: item 0: has 1 images and 1 texts; expected one image with several texts, several images with "
      "one text, or two of each");
  EXPECT_EQ(error_in("options", R"([{"image": "a.png", "options": ["x", "y"]},
                                    {"image": ["a.png", "b.png"], "options": ["x", "y"]}])"),
            "file.json: item 1: has two images and two texts, unlike the items before; expected items of one form");
}

TEST_F(OptionFiles, MissingImagesAndSettingsAreReported) {
  const std::string error =
      error_in("sugarcrepe", R"([{"filename": "no.png", "caption": "x", "negative_caption": "y"}])");
  EXPECT_TRUE(error.ends_with("check the folder of the images")) << error;
  OptionSettings none{.layout = "sugarcrepe"};
  EXPECT_EQ(error_of([&] { read_options(none); }),
            "options: annotations is not set; expected the files of layout sugarcrepe");
}

}  // namespace
}  // namespace tessera
