#include "src/data/image/encode.h"
#include "src/data/loading/evaluation_reader.h"
#include "tests/evaluation/plain_data.h"
#include <tessera/io/atomic_file.h>

namespace tessera {
namespace {

// Rows of a list that name the same image, beside the same data with one sample per image.
class TasksOnRows : public Tasks {
 protected:
  static constexpr std::int64_t kImages = 7, kCaptions = 3;

  TasksOnRows() {
    std::string table = "filepath,title\n", lines;
    for (std::int64_t c = 0; c < kCaptions; ++c)
      for (std::int64_t i = 0; i < kImages; ++i) {
        const std::string name = concat(i, ".png"),
                          caption = concat(static_cast<char>('a' + 3 * i + c), " dark ", static_cast<char>('b' + c));
        const std::string written = c == 0   ? name
                                    : c == 1 ? "./" + name
                                             : folder / name;  // three ways to name the same file
        table += concat(written, ",", caption, "\n");
        lines +=
            concat(R"({"image": ")", written, R"(", "caption": ")", caption, R"(", "negatives": ["zz )", c, "\"]}\n");
        io::write_file(folder / name, encoded_image(i));
      }
    io::write_file(folder / "rows.csv", table);
    io::write_file(folder / "rows.jsonl", lines);
    source->count = kImages;
    source->change = [](std::int64_t index, Sample& sample) {
      sample.image = {};
      sample.encoded = encoded_image(index);
      sample.captions.clear();
      for (std::int64_t c = 0; c < kCaptions; ++c)
        sample.captions.push_back(concat(static_cast<char>('a' + 3 * index + c), " dark ", static_cast<char>('b' + c)));
    };
  }
  /// Returns the file of an image that differs from those of other numbers.
  static std::string encoded_image(std::int64_t number) {
    Image image{16, 16, std::vector<std::uint8_t>(16 * 16 * 3)};
    for (std::size_t i = 0; i < image.pixels.size(); ++i)
      image.pixels[i] = static_cast<std::uint8_t>(i * i * static_cast<std::size_t>(number + 3) / 7);
    return encode_png(image);
  }
  std::string task_on(const std::string& task, const std::string& data) const {
    return concat("{name: ", task, ", source: ", data, "}");
  }

  const TemporaryFolder folder;
  const std::string csv = concat("{name: csv, path: ", folder / "rows.csv", "}");
  const std::string json_lines =
      concat("{name: json_lines, path: ", folder / "rows.jsonl", ", images: ", folder.path(), "}");
};

TEST_F(TasksOnRows, RowsWithTheSameFileAreOneImage) {
  for (const char* task : {"retrieval", "k_precision"}) {
    const TaskResult grouped = run(concat("{name: ", task, "}"));
    EXPECT_EQ(grouped.samples, kImages);
    EXPECT_EQ(grouped.texts, kImages * kCaptions);
    for (const std::string& data : {csv, json_lines}) {
      const TaskResult rows = run(task_on(task, data));
      EXPECT_EQ(rows.metrics, grouped.metrics) << data;
      EXPECT_EQ(rows.samples, kImages);
      EXPECT_EQ(rows.texts, kImages * kCaptions);
      EXPECT_TRUE(rows.data.ends_with("21 samples")) << rows.data;
    }
  }
  EXPECT_EQ(run(task_on("query, texts: [a]", csv)).samples, kImages);
  EXPECT_EQ(run(task_on("retrieval, max_samples: 2", csv)).texts, 2 * kCaptions);
}

TEST_F(TasksOnRows, RowsWithDifferentLabelsAreSamplesOfClassification) {
  io::write_file(folder / "labels.csv",
                 "filepath,title,label\n0.png,a,dark\n./0.png,b,bright\n1.png,c,dark\n2.png,d,bright\n");
  const std::string data = concat("{name: csv, label_key: label, path: ", folder / "labels.csv", "}");
  testing::internal::CaptureStderr();
  EXPECT_EQ(check(task_on("zero_shot", data)), "no error");
  for (const std::string& task : {task_on("zero_shot", data), task_on("knn, k: 1, train: " + data, data),
                                  task_on("linear_probe, l2: 1, train: " + data, data)}) {
    const TaskResult result = run(task);
    EXPECT_EQ(result.samples, 4) << task;
    EXPECT_TRUE(result.skipped.empty()) << task;
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr().find("different labels"), std::string::npos);
  EXPECT_EQ(run(task_on("retrieval", data)).samples, 3) << "there, images compete";
}

TEST_F(TasksOnRows, ABadRowDoesNotLoseTheOtherRowsOfItsImage) {
  io::write_file(folder / "classes.txt", "dark\nbright\n");
  io::write_file(folder / "bad.csv", "filepath,title,label\n0.png,a,dark\n0.png,b,gray\n1.png,c,dark\n2.png,d,gray\n");
  const TaskResult result = run(task_on("retrieval", concat("{name: csv, label_key: label, path: ", folder / "bad.csv",
                                                            ", classes: ", folder / "classes.txt", "}")));
  EXPECT_EQ(result.samples, 2);
  EXPECT_EQ(result.texts, 2);
  EXPECT_EQ(result.skipped, (std::map<std::string, std::int64_t>{{"bad_label", 1}}));
  EXPECT_EQ(result.notes.at(0), "1 row is bad and left out; the images have other rows");
}

TEST_F(TasksOnRows, EqualBytesUnderOtherNamesAreCountedAndGroupedOnRequest) {
  const TaskResult grouped = run("{name: retrieval}");
  const auto one_per_caption = source->change;
  source->count = kImages * kCaptions;
  source->change = [one_per_caption](std::int64_t index, Sample& sample) {
    one_per_caption(index / kCaptions, sample);
    sample.captions = {sample.captions.at(static_cast<std::size_t>(index % kCaptions))};
  };
  const TaskResult apart = run("{name: retrieval}");
  EXPECT_EQ(apart.samples, kImages * kCaptions);
  EXPECT_EQ(apart.equal_images, kImages * (kCaptions - 1));
  const TaskResult together = run("{name: retrieval, group_equal_images: true}");
  EXPECT_EQ(together.metrics, grouped.metrics);
  EXPECT_EQ(together.samples, kImages);
  EXPECT_EQ(together.equal_images, 0);
}

TEST_F(TasksOnRows, HardNegativesBelongToTheCaptionOfTheirRow) {
  const TaskResult rows = run(task_on("hard_negatives", json_lines));
  EXPECT_EQ(rows.samples, kImages);
  EXPECT_EQ(rows.texts, 2 * kImages * kCaptions);
  const DualEncoderEmbedder embedder(model, tokenizer);
  const auto data = sources().make(task_of(json_lines), "");
  double right = 0;
  for (std::int64_t i = 0; i < data->size(); ++i) {
    EvaluationSample sample{.sample = indexed(*data).get(i)};
    prepare_image(sample, embedder.preprocessing());
    const at::Tensor scores =
        embedder.similarity(embedder.encode_images(sample.pixels.unsqueeze(0), {}),
                            embedder.encode_texts({sample.sample.captions[0], sample.sample.negatives[0].caption}, {}));
    right += scores[0][0].item<double>() > scores[0][1].item<double>() ? 1 : 0;
  }
  EXPECT_NEAR(metric(rows, "accuracy"), right / static_cast<double>(data->size()), 1e-12);
  ASSERT_FALSE(rows.outcomes.empty());
  expect_outcomes_give_metrics(rows);
}

}  // namespace
}  // namespace tessera
