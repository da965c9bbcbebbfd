#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <tessera/config/registry.h>

namespace tessera {

/// A list of texts in settings, given either directly or as the path of a file with one text per line. Empty lines and lines that begin
/// with # are skipped. A relative path is resolved against the folder of the file that names it, then against the working folder. The file
/// is read together with the settings, so a resolved configuration contains the texts themselves.
struct TextList {
  std::vector<std::string> items;
  TextList() = default;
  TextList(std::initializer_list<std::string> list) : items(list) {}
  bool operator==(const TextList&) const = default;
};

namespace config {
template <>
struct Value<TextList> {
  static TextList read(const Node& node, const std::string& path, const TextList&);
  static Node dump(const TextList& value) { return Value<std::vector<std::string>>::dump(value.items); }
  static std::string type() { return "list of string, or a file"; }
};
}  // namespace config

/// Returns the problem with the templates, such as `templates: template 2 ("a photo") has no {}`; nothing if there is none.
std::optional<config::Problem> check_templates(const TextList& templates);

/// The data settings that every task has.
struct TaskData {
  std::optional<config::ModuleSettings> source;
  std::int64_t max_samples = -1;
  bool group_equal_images = false;  // only for tasks with equal_images_field()
};

template <class Visitor>
void data_fields(Visitor& v, TaskData& s) {
  v("source", s.source, "data set to measure, such as {name: shapes, split: test}; null: the run's validation data");
  v("max_samples", s.max_samples, "use only the first N samples; -1: all", config::at_least(-1));
}

/// The setting of tasks that compare images with each other, or texts with all images.
template <class Visitor>
void equal_images_field(Visitor& v, TaskData& s) {
  v("group_equal_images", s.group_equal_images,
    "count samples whose images have equal bytes as one image with all their captions, for which all images are read "
    "once more; false: "
    "only samples that name the same file");
}

/// The data of a task that learns from one set of samples and is measured on another.
struct TrainTestData {
  std::optional<config::ModuleSettings> train;
  std::optional<config::ModuleSettings> source;
  std::int64_t max_train_samples = -1;
  std::int64_t max_samples = -1;
};

/// `train_help` is the help text of `train`, which says what the training data is for.
template <class Visitor>
void train_test_fields(Visitor& v, TrainTestData& s, const char* train_help) {
  v("train", s.train, train_help);
  v("source", s.source, "data set to test on; null: the run's validation data");
  v("max_train_samples", s.max_train_samples, "train on only the first N samples; -1: all",
    config::at_least(-1));
  v("max_samples", s.max_samples, "test on only the first N samples; -1: all", config::at_least(-1));
}

/// How images are compared with texts.
struct SimilaritySettings {
  std::string similarity = "global";
  std::int64_t candidates = 128;
};

/// Adds the setting `similarity` for tasks that compare each image with only a few texts.
template <class Visitor>
void similarity_field(Visitor& v, std::string& similarity) {
  v("similarity", similarity,
    "how images are compared with texts; global: by the cosine of their embeddings; conditioned: by the cosine of a text's "
    "embedding with the image embedding that is pooled for this text, for models with a text-conditioned pool (FLAIR)",
    config::one_of({"global", "conditioned"}));
}

template <class Visitor>
void similarity_fields(Visitor& v, SimilaritySettings& s) {
  v("similarity", s.similarity,
    "how images are compared with texts; global: by the cosine of their embeddings; conditioned: by the cosine of a text's "
    "embedding with the image embedding that is pooled for this text, for models with a text-conditioned pool (FLAIR); topk: as "
    "conditioned, but only for an image's `candidates`, behind which the other texts follow by cosine",
    config::one_of({"global", "conditioned", "topk"}));
  v("candidates", s.candidates, "with similarity: topk, the number of texts that are an image's candidates, those with the greatest "
                                "cosine",
    config::at_least(1));
}

struct ZeroShotSettings {
  TaskData data;
  TextList classes;
  TextList templates = {"a photo of a {}."};
  std::vector<std::int64_t> topk = {1, 5};
  bool text_encoder_free = false;
  SimilaritySettings compared;
};

/// Adds the setting `text_encoder_free` for tasks that can run without the text tower.
template <class Visitor>
void text_encoder_free_field(Visitor& v, bool& value) {
  v("text_encoder_free", value,
    "do not use the text tower; a text's embedding is then 1 at each of its tokens and 0 elsewhere. For models whose embeddings are "
    "weights of vocabulary tokens (STAIR)");
}

template <class Visitor>
void fields(Visitor& v, ZeroShotSettings& s) {
  data_fields(v, s.data);
  v("classes", s.classes, "class names, one per label; empty: those of the source");
  v("templates", s.templates, "prompts with {} for the class name; the embeddings of several prompts are averaged (Radford et al. "
                              "2021, 3.1.4)");
  v("topk", s.topk, "the values k for which to report the accuracy: the right class is among the k best", config::at_least(1));
  text_encoder_free_field(v, s.text_encoder_free);
  similarity_fields(v, s.compared);
}
std::optional<config::Problem> validate(const ZeroShotSettings& settings);

struct RetrievalSettings {
  TaskData data;
  std::int64_t captions_per_image = 0;
  std::vector<std::int64_t> topk = {1, 5, 10};
  bool sentences = false;
  std::string prompt_prefix;
  bool text_encoder_free = false;
  SimilaritySettings compared;
};

template <class Visitor>
void fields(Visitor& v, RetrievalSettings& s) {
  data_fields(v, s.data);
  equal_images_field(v, s.data);
  v("captions_per_image", s.captions_per_image, "use only the first N captions of each image; 0: all",
    config::at_least(0));
  v("topk", s.topk, "the values k for which to report the recall", config::at_least(1));
  v("sentences", s.sentences,
    "treat each sentence of a caption as a caption; texts are split at full stops, line ends and </s> (FLAIR's fine-grained retrieval)");
  v("prompt_prefix", s.prompt_prefix, "text put before every caption, such as \"a photo of \"");
  text_encoder_free_field(v, s.text_encoder_free);
  similarity_fields(v, s.compared);
}
std::optional<config::Problem> validate(const RetrievalSettings& settings);

/// Settings for segmenting whole images by overlapping windows of the model's input size.
struct WindowSettings {
  std::int64_t short_side = 336;
  std::optional<std::int64_t> size;
  std::optional<std::int64_t> stride;
};

template <class Visitor>
void fields(Visitor& v, WindowSettings& s) {
  v("short_side", s.short_side,
    "size in pixels to which an image's shorter side is resized, keeping the aspect ratio; 0: do not resize. The image is made at "
    "least as large as one window",
    config::at_least(0));
  v("size", s.size, "side of a window in pixels; null: the model's image size", config::at_least(1));
  v("stride", s.stride, "pixels from one window to the next; null: half a window", config::at_least(1));
}

struct SegmentationSettings {
  TaskData data;
  TextList classes;
  TextList templates = {"a photo of a {}."};
  std::string by = "patches";
  std::string patches = "cosine";
  std::string last_block = "plain";
  std::string upsample = "bilinear";
  std::string candidates = "present";
  std::optional<WindowSettings> windows;
  std::optional<double> background_threshold;
  std::string threshold_of = "probability";
  std::optional<double> logit_scale;
};

template <class Visitor>
void fields(Visitor& v, SegmentationSettings& s) {
  data_fields(v, s.data);
  v("classes", s.classes,
    "class names, one entry per mask value; empty: those of the source. An entry can have several names, separated by commas "
    "(person, man, woman), of which the best one counts; text before a colon is only displayed (background: sky, wall)");
  v("templates", s.templates, "prompts with {} for the class name; the embeddings of several prompts are averaged");
  v("by", s.by,
    "what is classified; patches: each patch by itself; groups: the image tower's groups, whose class all pixels of the group get "
    "(GroupViT)",
    config::one_of({"patches", "groups"}));
  v("patches", s.patches,
    "how patches are compared with texts; cosine: by the cosine of their embeddings; for models with a text-conditioned pool "
    "(FLAIR) also conditioned: by the cosine of a text's embedding with only that patch pooled for the text, or attention: by the "
    "text's attention to the patch",
    config::one_of({"cosine", "conditioned", "attention"}));
  v("last_block", s.last_block,
    "how the last block of a ViT computes patches; plain: as in training; maskclip, sclip, clearclip, naclip: with the changes of "
    "these papers, which need no training (docs/evaluation.md)",
    config::one_of({"plain", "maskclip", "sclip", "clearclip", "naclip"}));
  v("upsample", s.upsample, "how similarities or group weights of patches are resized to pixels",
    config::one_of({"bilinear", "nearest"}));
  v("candidates", s.candidates,
    "which classes can be predicted for an image; present: those in its ground truth (SPARC's protocol); all: every class; "
    "foreground: every class except background, which is predicted only by background_threshold",
    config::one_of({"present", "foreground", "all"}));
  v("windows", s.windows,
    "segment whole images by sliding windows, with masks at their original size: {short_side: 336, size: 224, stride: 112}; null: "
    "segment images and masks as cropped by the model's preprocessing");
  v("background_threshold", s.background_threshold,
    "pixels whose best class scores below this value become background; null: only pixels whose best name is a background name",
    config::in_range(-1, 1));
  v("threshold_of", s.threshold_of,
    "what background_threshold applies to; probability: the softmax, over all names, of logit_scale times the cosines; cosine: the "
    "cosine",
    config::one_of({"probability", "cosine"}));
  v("logit_scale", s.logit_scale,
    "factor of the cosines in the softmax of threshold_of: probability; null: the model's learned factor, or 100 if it has none or several",
    config::above(0));
}
std::optional<config::Problem> validate(const SegmentationSettings& settings);

struct LinearProbeSettings : TrainTestData {
  std::optional<double> l2;
  double validation_share = 0.2;
  bool normalize = false;
  std::string solver = "lbfgs";
  std::vector<double> learning_rates = {0.001, 0.01, 0.1};
  std::vector<double> weight_decays = {0.0, 0.0001, 0.01};
  std::int64_t epochs = 10;
  std::int64_t batch_size = 64;
};

template <class Visitor>
void fields(Visitor& v, LinearProbeSettings& s) {
  train_test_fields(v, s, "data set to fit the classifier on; null: the run's training data");
  v("l2", s.l2,
    "weight of the L2 penalty; null: the best of 97 values from 1e-6 to 100 on a held-out part of train (CLIP, A.3)",
    config::at_least(0));
  v("validation_share", s.validation_share, "share of train that is held out to choose l2, or the learning rate and weight decay",
    config::in_half_open(0, 1));
  v("normalize", s.normalize, "scale features to length 1 before the fit (CLIP does not)");
  v("solver", s.solver,
    "how the classifier is fitted; lbfgs: to the minimum, with an L2 penalty (CLIP); adamw: for some epochs from zero, with a "
    "half-cosine learning rate (SPARO, CLIP_benchmark)",
    config::one_of({"lbfgs", "adamw"}));
  v("learning_rates", s.learning_rates,
    "with solver: adamw, learning rates to try; each is combined with each of weight_decays and measured on the held-out part of "
    "train. With a single combination nothing is held out",
    config::above(0));
  v("weight_decays", s.weight_decays, "with solver: adamw, weight decays to try", config::at_least(0));
  v("epochs", s.epochs, "with solver: adamw, number of passes over train", config::at_least(1));
  v("batch_size", s.batch_size, "with solver: adamw, number of samples per update", config::at_least(1));
}
std::optional<config::Problem> validate(const LinearProbeSettings& settings);

struct KnnSettings : TrainTestData {
  std::int64_t k = 20;
  double temperature = 0.07;
};

template <class Visitor>
void fields(Visitor& v, KnnSettings& s) {
  train_test_fields(v, s, "data set whose samples vote; null: the run's training data");
  v("k", s.k, "number of neighbors that vote", config::at_least(1));
  v("temperature", s.temperature, "temperature of the votes: a neighbor's vote has the weight exp(cosine / temperature)",
    config::above(0));
}

/// Settings of segmentation by a linear classifier on frozen patch features (DINOv2, TIPS, SigLIP 2).
struct SegmentationProbeSettings : TrainTestData {
  TextList classes;
  std::vector<std::string> ignore;
  double l2 = 1e-4;
  std::int64_t patches_per_image = 64;
};

template <class Visitor>
void fields(Visitor& v, SegmentationProbeSettings& s) {
  train_test_fields(v, s, "data set with masks to fit the classifier on; null: the run's training data");
  v("classes", s.classes, "class names, one per mask value; empty: those of the source");
  v("ignore", s.ignore,
    "names of classes whose pixels are left out of the fit and of the scores, such as [background], which would otherwise dominate");
  v("l2", s.l2, "weight of the L2 penalty of the classifier", config::at_least(0));
  v("patches_per_image", s.patches_per_image, "fit the classifier on at most this many patches of each training image",
    config::at_least(1));
}

/// Settings of depth estimation by a linear map of frozen patch features (DINOv2, TIPS).
struct DepthProbeSettings : TrainTestData {
  double l2 = 1e-4;
  double nearest = 0.001;
  double farthest = 10;
};

template <class Visitor>
void fields(Visitor& v, DepthProbeSettings& s) {
  train_test_fields(v, s, "data set with depths to fit the map on; null: the run's training data");
  v("l2", s.l2, "weight of the L2 penalty of the map, for features scaled to standard deviation 1", config::at_least(0));
  v("nearest", s.nearest, "smallest depth in meters; closer pixels do not count, and predictions are at least this", config::above(0));
  v("farthest", s.farthest, "greatest depth in meters; farther pixels do not count, and predictions are at most this", config::above(0));
}
std::optional<config::Problem> validate(const DepthProbeSettings& settings);

/// Settings of the task that compares right captions with hard negatives of the same image, as in SugarCrepe. It needs a source with
/// `negatives`.
struct HardNegativeSettings {
  TaskData data;
  std::string similarity = "global";
};

template <class Visitor>
void fields(Visitor& v, HardNegativeSettings& s) {
  data_fields(v, s.data);
  similarity_field(v, s.similarity);
}

/// Settings of the task that classifies boxes, where each box has its own list of candidate texts (FG-OVD, Bianchi et al. 2024).
struct FgOvdSettings {
  TaskData data;
  std::map<std::string, config::ModuleSettings> sets;
  std::string prompt_prefix;
};

template <class Visitor>
void fields(Visitor& v, FgOvdSettings& s) {
  data_fields(v, s.data);
  v("sets", s.sets,
    "data sets by difficulty, each of which is reported separately: {hard: {name: json_lines, ...}, easy: ...}; empty: only `source`");
  v("prompt_prefix", s.prompt_prefix, "text put before every text, such as \"a photo of \"");
}
std::optional<config::Problem> validate(const FgOvdSettings& settings);

/// Settings of the task that learns a mask over the slots of image embeddings (Vani et al. 2024, 5.2). The mask is trained on hard
/// negatives; the model is frozen.
struct SlotMaskSettings : TrainTestData {
  std::string granularity = "slot";
  std::optional<std::int64_t> slots;
  std::int64_t steps = 100;
  double lr = 0.02;
  double momentum = 0.9;
};

template <class Visitor>
void fields(Visitor& v, SlotMaskSettings& s) {
  train_test_fields(v, s, "data set with hard negatives to train the mask on; null: the run's training data");
  v("granularity", s.granularity, "what has a weight of its own: each slot, or each dimension of the embedding",
    config::one_of({"slot", "dimension"}));
  v("slots", s.slots, "number of equal parts of the embedding to treat as slots; null: the model's own slots",
    config::at_least(1));
  v("steps", s.steps, "number of updates, each over all pairs", config::at_least(1));
  v("lr", s.lr, "learning rate of SGD", config::above(0));
  v("momentum", s.momentum, "momentum of SGD", config::in_half_open(0, 1));
}

/// Settings of the task that shows attention maps of individual slots.
struct SlotImageSettings {
  TaskData data;
  std::int64_t samples = 8;
  std::int64_t per_sample = 4;
  std::vector<std::int64_t> slots;
};

template <class Visitor>
void fields(Visitor& v, SlotImageSettings& s) {
  data_fields(v, s.data);
  v("samples", s.samples, "number of images to show, spread over the data", config::at_least(1));
  v("per_sample", s.per_sample, "number of slots to show for each image, those with the greatest cosine between image and caption",
    config::at_least(1));
  v("slots", s.slots, "slots to show for every image; empty: the best slots of each image", config::at_least(0));
}

/// Settings for the vocabulary whose tokens describe image embeddings (see TokenSpace).
struct VocabularySettings {
  std::optional<config::ModuleSettings> vocabulary;
  TextList templates = {"{}"};
};

template <class Visitor>
void vocabulary_fields(Visitor& v, VocabularySettings& s) {
  v("vocabulary", s.vocabulary,
    "tokenizer whose tokens' texts are compared with images, such as {name: wordpiece, vocab: vocab.txt}; null: the model's own. "
    "Leave it out for models whose embeddings are weights of vocabulary tokens");
  v("templates", s.templates, "prompts with {} for a token's text, used if tokens' texts are compared with images");
}

/// Settings of the task that measures the rank of the class name among all tokens of a vocabulary (Chen et al. 2023, section 5).
struct InterpretabilitySettings {
  TaskData data;
  TextList classes;
  std::vector<std::int64_t> topk = {1, 10, 50, 100};
  VocabularySettings space;
};

template <class Visitor>
void fields(Visitor& v, InterpretabilitySettings& s) {
  data_fields(v, s.data);
  v("classes", s.classes, "class names, one per label; empty: those of the source");
  v("topk", s.topk, "the values k for which to report the accuracy: the class name is among the k most active tokens",
    config::at_least(1));
  vocabulary_fields(v, s.space);
}
std::optional<config::Problem> validate(const InterpretabilitySettings& settings);

/// Settings of the task that shows images with their most active tokens.
struct TokenImageSettings {
  TaskData data;
  std::int64_t samples = 6;
  std::int64_t per_sample = 20;
  std::int64_t maps = 3;
  std::vector<std::string> words;
  VocabularySettings space;
};

template <class Visitor>
void fields(Visitor& v, TokenImageSettings& s) {
  data_fields(v, s.data);
  v("samples", s.samples, "number of images to show, spread over the data", config::at_least(1));
  v("per_sample", s.per_sample, "number of most active tokens to show for each image", config::in_range(1, 100));
  v("maps", s.maps, "number of an image's most active tokens for which to show a heat map", config::at_least(0));
  v("words", s.words, "words for which to show heat maps over every image; empty: each image's most active tokens");
  vocabulary_fields(v, s.space);
}
std::optional<config::Problem> validate(const TokenImageSettings& settings);

/// Settings of the task that measures how well a text tower's groups agree with the phrases of captions (tIoU of the text group
/// transformer, section 4.4).
struct TokenGroupSettings {
  TaskData data;
  std::string by = "groups";
  std::int64_t clusters = 4;
  std::int64_t samples = 8;
};

template <class Visitor>
void fields(Visitor& v, TokenGroupSettings& s) {
  data_fields(v, s.data);
  v("by", s.by,
    "what groups words; groups: the text tower's own groups; k_means: clusters of the tower's token features, for towers without "
    "groups (the paper's comparison)",
    config::one_of({"groups", "k_means"}));
  v("clusters", s.clusters, "with by: k_means, the number of clusters per caption", config::at_least(1));
  v("samples", s.samples, "number of captions to show, spread over the data", config::at_least(1));
}

/// Settings of the task that measures the training loss on held-out data.
struct ValidationLossSettings {
  TaskData data;
  std::optional<std::int64_t> batch_size;
};

template <class Visitor>
void fields(Visitor& v, ValidationLossSettings& s) {
  data_fields(v, s.data);
  v("batch_size", s.batch_size,
    "number of samples in a batch, which are each other's negatives; null: data.loader.batch_size. An incomplete last batch is not "
    "measured",
    config::at_least(1));
}

}  // namespace tessera
