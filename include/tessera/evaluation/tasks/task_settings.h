#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <tessera/config/registry.h>

namespace tessera {

/// Lines of text in settings: a list, or the path of a file with one text per line (empty lines and lines that begin with #
/// are skipped; a relative path is resolved against the folder of the file that names it, then against the working folder).
/// The file is read together with the settings, so a resolved configuration contains the lines themselves.
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

/// Returns the problem (`templates: template 2 ("a photo") has no {}`) or nothing.
std::optional<config::Problem> check_templates(const TextList& templates);

/// The data settings that every task has.
struct TaskData {
  std::optional<config::ModuleSettings> source;
  std::int64_t max_samples = -1;
};

template <class Visitor>
void data_fields(Visitor& v, TaskData& s) {
  v("source", s.source, "data set {name: shapes, split: test}; null: the run's validation data");
  v("max_samples", s.max_samples, "use only the first N samples; -1: all", config::at_least(-1));
}

/// The data of a task that learns from one set of samples and is measured on another.
struct TrainTestData {
  std::optional<config::ModuleSettings> train;
  std::optional<config::ModuleSettings> source;
  std::int64_t max_train_samples = -1;
  std::int64_t max_samples = -1;
};

/// `train_help` describes the purpose of the training data.
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

/// The setting of tasks that compare each image with only a few texts.
template <class Visitor>
void similarity_field(Visitor& v, std::string& similarity) {
  v("similarity", similarity,
    "global: the cosine of the embeddings; conditioned: the cosine of a text with the image embedding that it pools itself, "
    "for models with a text-conditioned pool (FLAIR)",
    config::one_of({"global", "conditioned"}));
}

template <class Visitor>
void similarity_fields(Visitor& v, SimilaritySettings& s) {
  v("similarity", s.similarity,
    "global: the cosine of the embeddings; conditioned: the cosine of a text with the image embedding that it pools itself, "
    "for models with a text-conditioned pool (FLAIR); topk: conditioned for an image's `candidates`, then the rest by cosine",
    config::one_of({"global", "conditioned", "topk"}));
  v("candidates", s.candidates, "with similarity: topk, how many texts of greatest cosine are candidates of an image",
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

/// The setting of tasks that can run without the text tower.
template <class Visitor>
void text_encoder_free_field(Visitor& v, bool& value) {
  v("text_encoder_free", value,
    "do not use the text tower: a text's embedding is 1 at each of its tokens and 0 elsewhere, for models whose "
    "embeddings are weights of vocabulary tokens (STAIR)");
}

template <class Visitor>
void fields(Visitor& v, ZeroShotSettings& s) {
  data_fields(v, s.data);
  v("classes", s.classes, "class names by label; empty: the source's own");
  v("templates", s.templates, "prompts with {} for the class name; several are averaged (Radford et al. 2021, 3.1.4)");
  v("topk", s.topk, "accuracies to report: right class among the k best", config::at_least(1));
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
  v("captions_per_image", s.captions_per_image, "use only the first N captions of an image; 0: all",
    config::at_least(0));
  v("topk", s.topk, "recalls to report", config::at_least(1));
  v("sentences", s.sentences,
    "treat each sentence of a caption as a caption: texts are split at full stops, line ends and </s> (FLAIR's "
    "fine-grained retrieval)");
  v("prompt_prefix", s.prompt_prefix, "put before every caption (\"a photo of \")");
  text_encoder_free_field(v, s.text_encoder_free);
  similarity_fields(v, s.compared);
}
std::optional<config::Problem> validate(const RetrievalSettings& settings);

/// Segmentation of whole images by overlapping windows of the model's input size.
struct WindowSettings {
  std::int64_t short_side = 336;
  std::optional<std::int64_t> size;
  std::optional<std::int64_t> stride;
};

template <class Visitor>
void fields(Visitor& v, WindowSettings& s) {
  v("short_side", s.short_side,
    "pixels to resize an image's shorter side to, keeping its aspect ratio; 0: its own size. At least a window is used",
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
    "class names by mask value; empty: the source's own. Several names of a class are separated by commas (person, man, "
    "woman), and the best one counts; text before a colon is only displayed (background: sky, wall)");
  v("templates", s.templates, "prompts with {} for the class name; several are averaged");
  v("by", s.by,
    "what is classified: patches, each by itself; groups, those of the image tower, each pixel like its group (GroupViT)",
    config::one_of({"patches", "groups"}));
  v("patches", s.patches,
    "how patches are compared with texts: cosine, of their embeddings; for models with a text-conditioned pool (FLAIR) also "
    "conditioned, the cosine of a text with its pooling of that patch only, or attention, the text's attention to the patch",
    config::one_of({"cosine", "conditioned", "attention"}));
  v("last_block", s.last_block,
    "how the last block of a ViT computes patches: plain, as in training; maskclip, sclip, clearclip, naclip: with these "
    "papers' changes, which need no training (docs/evaluation.md)",
    config::one_of({"plain", "maskclip", "sclip", "clearclip", "naclip"}));
  v("upsample", s.upsample, "how similarities or group weights of patches are resized to pixels",
    config::one_of({"bilinear", "nearest"}));
  v("candidates", s.candidates,
    "present: classes of the image's ground truth (SPARC's protocol); all: every class; foreground: every class except the "
    "background, which only background_threshold predicts",
    config::one_of({"present", "foreground", "all"}));
  v("windows", s.windows,
    "segment whole images by sliding windows, with masks in their own size: {short_side: 336, size: 224, stride: 112}; "
    "null: images and masks as the model's preprocessing crops them");
  v("background_threshold", s.background_threshold,
    "pixels whose best class scores below this are background; null: only pixels nearest to a background name are",
    config::in_range(-1, 1));
  v("threshold_of", s.threshold_of,
    "what background_threshold applies to: probability, a softmax over the names of logit_scale times the cosines; or cosine",
    config::one_of({"probability", "cosine"}));
  v("logit_scale", s.logit_scale, "factor of cosines in that softmax; null: the model's own", config::above(0));
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
    "weight of the L2 penalty; null: swept over 97 values from 1e-6 to 100 on a held-out part of train (CLIP, A.3)",
    config::at_least(0));
  v("validation_share", s.validation_share, "share of train held out for the sweep", config::in_half_open(0, 1));
  v("normalize", s.normalize, "scale features to length 1 first (CLIP does not)");
  v("solver", s.solver,
    "lbfgs: solves to the minimum, with an L2 penalty (CLIP); adamw: trains for some epochs from zero, with a half-cosine "
    "learning rate (SPARO, CLIP_benchmark)",
    config::one_of({"lbfgs", "adamw"}));
  v("learning_rates", s.learning_rates,
    "with solver: adamw, each is tried with each of weight_decays on the held-out part of train; one of each: no holdout",
    config::above(0));
  v("weight_decays", s.weight_decays, "with solver: adamw", config::at_least(0));
  v("epochs", s.epochs, "with solver: adamw, passes over train", config::at_least(1));
  v("batch_size", s.batch_size, "with solver: adamw, samples per update", config::at_least(1));
}
std::optional<config::Problem> validate(const LinearProbeSettings& settings);

struct KnnSettings : TrainTestData {
  std::int64_t k = 20;
  double temperature = 0.07;
};

template <class Visitor>
void fields(Visitor& v, KnnSettings& s) {
  train_test_fields(v, s, "data set whose samples vote; null: the run's training data");
  v("k", s.k, "neighbors that vote", config::at_least(1));
  v("temperature", s.temperature, "a vote weighs exp(cosine / temperature)", config::above(0));
}

/// Segmentation by a linear classifier on frozen patch features (DINOv2, TIPS, SigLIP 2).
struct SegmentationProbeSettings : TrainTestData {
  TextList classes;
  std::vector<std::string> ignore;
  double l2 = 1e-4;
  std::int64_t patches_per_image = 64;
};

template <class Visitor>
void fields(Visitor& v, SegmentationProbeSettings& s) {
  train_test_fields(v, s, "data set with masks to fit the classifier on; null: the run's training data");
  v("classes", s.classes, "class names by mask value; empty: the source's own");
  v("ignore", s.ignore,
    "names of classes whose pixels count neither in the fit nor in the scores, such as [background], which would otherwise "
    "dominate");
  v("l2", s.l2, "weight of the L2 penalty of the classifier", config::at_least(0));
  v("patches_per_image", s.patches_per_image, "fit the classifier on at most this many patches of each training image",
    config::at_least(1));
}

/// Depth by a linear map of frozen patch features (DINOv2, TIPS).
struct DepthProbeSettings : TrainTestData {
  double l2 = 1e-4;
  double nearest = 0.001;
  double farthest = 10;
};

template <class Visitor>
void fields(Visitor& v, DepthProbeSettings& s) {
  train_test_fields(v, s, "data set with depths to fit the map on; null: the run's training data");
  v("l2", s.l2, "weight of the L2 penalty of the map, on features scaled to deviation 1", config::at_least(0));
  v("nearest", s.nearest, "meters; closer pixels do not count, and predictions are clamped to it", config::above(0));
  v("farthest", s.farthest, "meters; farther pixels do not count, and predictions are clamped to it", config::above(0));
}
std::optional<config::Problem> validate(const DepthProbeSettings& settings);

/// Right captions against hard negatives of the same image, as in SugarCrepe; for sources with `negatives`.
struct HardNegativeSettings {
  TaskData data;
  std::string similarity = "global";
};

template <class Visitor>
void fields(Visitor& v, HardNegativeSettings& s) {
  data_fields(v, s.data);
  similarity_field(v, s.similarity);
}

/// Classification of boxes, each with its own choice of texts (FG-OVD, Bianchi et al. 2024).
struct FgOvdSettings {
  TaskData data;
  std::map<std::string, config::ModuleSettings> sets;
  std::string prompt_prefix;
};

template <class Visitor>
void fields(Visitor& v, FgOvdSettings& s) {
  data_fields(v, s.data);
  v("sets", s.sets,
    "data sets by difficulty, {hard: {name: json_lines, ...}, easy: ...}, each reported separately; empty: only `source`");
  v("prompt_prefix", s.prompt_prefix, "put before every text (\"a photo of \")");
}
std::optional<config::Problem> validate(const FgOvdSettings& settings);

/// A mask over the slots of image embeddings, trained on hard negatives with the model frozen (Vani et al. 2024, 5.2).
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
  v("granularity", s.granularity, "what has its own weight: each slot, or each dimension of the embedding",
    config::one_of({"slot", "dimension"}));
  v("slots", s.slots, "number of equal parts of the embedding to treat as slots; null: the model's own slots",
    config::at_least(1));
  v("steps", s.steps, "updates, each over all pairs", config::at_least(1));
  v("lr", s.lr, "learning rate of SGD", config::above(0));
  v("momentum", s.momentum, "momentum of SGD", config::in_half_open(0, 1));
}

/// Attention maps of single slots.
struct SlotPictureSettings {
  TaskData data;
  std::int64_t samples = 8;
  std::int64_t per_sample = 4;
  std::vector<std::int64_t> slots;
};

template <class Visitor>
void fields(Visitor& v, SlotPictureSettings& s) {
  data_fields(v, s.data);
  v("samples", s.samples, "images to show, spread over the data", config::at_least(1));
  v("per_sample", s.per_sample, "slots to show of each image, those of greatest cosine between image and caption",
    config::at_least(1));
  v("slots", s.slots, "show these slots of every image; empty: the best ones of each", config::at_least(0));
}

/// The vocabulary in which image embeddings are read.
struct VocabularySettings {
  std::optional<config::ModuleSettings> vocabulary;
  TextList templates = {"{}"};
};

template <class Visitor>
void vocabulary_fields(Visitor& v, VocabularySettings& s) {
  v("vocabulary", s.vocabulary,
    "tokenizer {name: wordpiece, vocab: vocab.txt} whose tokens' texts are compared with images; null: the model's own. "
    "Leave it out for models whose embeddings are weights of vocabulary tokens");
  v("templates", s.templates, "prompts for tokens whose texts are compared with images, {} for the token's text");
}

/// The rank of the class name among all tokens of a vocabulary (Chen et al. 2023, section 5).
struct InterpretabilitySettings {
  TaskData data;
  TextList classes;
  std::vector<std::int64_t> topk = {1, 10, 50, 100};
  VocabularySettings space;
};

template <class Visitor>
void fields(Visitor& v, InterpretabilitySettings& s) {
  data_fields(v, s.data);
  v("classes", s.classes, "class names by label; empty: the source's own");
  v("topk", s.topk, "accuracies to report: class name among the k most active tokens", config::at_least(1));
  vocabulary_fields(v, s.space);
}
std::optional<config::Problem> validate(const InterpretabilitySettings& settings);

/// Images with their most active tokens.
struct TokenPictureSettings {
  TaskData data;
  std::int64_t samples = 6;
  std::int64_t per_sample = 20;
  std::int64_t maps = 3;
  std::vector<std::string> words;
  VocabularySettings space;
};

template <class Visitor>
void fields(Visitor& v, TokenPictureSettings& s) {
  data_fields(v, s.data);
  v("samples", s.samples, "images to show, spread over the data", config::at_least(1));
  v("per_sample", s.per_sample, "how many of the most active tokens to show of each image", config::in_range(1, 100));
  v("maps", s.maps, "for how many of an image's most active tokens to show a heat map", config::at_least(0));
  v("words", s.words, "show heat maps of these words over every image; empty: of the image's own tokens");
  vocabulary_fields(v, s.space);
}
std::optional<config::Problem> validate(const TokenPictureSettings& settings);

/// How well a text tower's groups agree with the phrases of captions (tIoU of the text group transformer, section 4.4).
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
    "what groups words: groups, the text tower's own; k_means, clusters of the tower's token features, for towers without "
    "groups (the paper's comparison)",
    config::one_of({"groups", "k_means"}));
  v("clusters", s.clusters, "with by: k_means, clusters of a caption", config::at_least(1));
  v("samples", s.samples, "captions to show, spread over the data", config::at_least(1));
}

/// The training loss on held-out data.
struct ValidationLossSettings {
  TaskData data;
  std::optional<std::int64_t> batch_size;
};

template <class Visitor>
void fields(Visitor& v, ValidationLossSettings& s) {
  data_fields(v, s.data);
  v("batch_size", s.batch_size,
    "samples of a batch, which are each other's negatives; null: data.loader.batch_size. An incomplete last batch is not "
    "measured",
    config::at_least(1));
}

}  // namespace tessera
