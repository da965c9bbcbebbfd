#include <map>

#include <tessera/report/score_rule.h>

namespace tessera::report {
namespace {

/// Empty: the settings do not say.
std::string setting_of(const config::Node& settings, const char* key) {
  const config::Node* found = settings.find(key);
  return found == nullptr || !found->is_scalar() ? "" : found->text();
}

constexpr const char* kIou =
    " IoU is the overlap of the predicted and the true region of a class divided by their union: image_miou is its mean over the "
    "classes of each picture, then over pictures; dataset_miou its mean over classes, all pictures taken together, neither with a "
    "background (dataset_miou_with_background counts it); pixel_accuracy the share of pixels with the right class.";

std::string segmentation_rule(const config::Node& settings) {
  const std::string by = setting_of(settings, "by"), candidates = setting_of(settings, "candidates");
  const std::string taker = by == "patches" ? "patch" : by == "groups" ? "group" : "patch or group";
  std::string rule = "Each pixel takes the class whose text is nearest to its " + taker;
  if (candidates == "present")
    rule +=
        ", of only those classes that the picture's true mask holds (candidates: present); a background, if the "
        "data have one, is none of them, and its pixels count as wrong.";
  else if (candidates == "all")
    rule += ", of all classes (candidates: all).";
  else if (candidates == "foreground")
    rule += ", of all classes but the background (candidates: foreground).";
  else
    rule += ", of all classes or only of those that the picture's true mask holds (the setting candidates).";
  const std::string patches = setting_of(settings, "patches");
  if (patches == "conditioned")
    rule += " What is near to a text is what it finds in a patch alone, by the objective's pool (patches: conditioned).";
  if (patches == "attention")
    rule += " How near a patch is to a text is how much the text looks at it, by the objective's pool (patches: attention).";
  const std::string block = setting_of(settings, "last_block");
  if (!block.empty() && block != "plain") rule += " The last block of the ViT is that of " + block + " (last_block).";
  return rule + kIou;
}

/// What `similarity` adds to a task's rule; empty where it is global.
std::string similarity_rule(const config::Node& settings) {
  const std::string similarity = setting_of(settings, "similarity");
  if (similarity == "conditioned")
    return " A text is compared with what it finds in a picture, by the objective's pool (similarity: conditioned).";
  if (similarity == "topk")
    return " The " + setting_of(settings, "candidates") +
           " texts nearest to a picture's embedding are compared with what they find in it, by the objective's pool; all "
           "others come behind them, by their cosine less 4 (similarity: topk).";
  return "";
}

}  // namespace

std::string score_rule(const std::string& task, const config::Node& settings) {
  if (task == "segmentation") return segmentation_rule(settings);
  if (task == "segmentation_probe")
    return std::string("Each pixel takes the class, of all classes, that a linear classifier of the image encoder's patches gives it, "
                       "which was fitted on the training data.") + kIou;
  static const std::map<std::string, std::string> rules = {
      {"zero_shot",
       "top k: the share of pictures whose class is among the k nearest of the class texts (cosine); mean_per_class: "
       "the "
       "mean of each class's own top 1."},
      {"retrieval",
       "recall@k: the share of captions whose picture is among the k nearest of all pictures (text_to_image), and of "
       "pictures with one of their captions among the k nearest of all captions (image_to_text)."},
      {"k_precision",
       "k_precision: of the caption nearest to a picture, the share of its words that a caption of the picture has, the mean "
       "over pictures; k_precision_na: of its nouns and adjectives alone, where it has some."},
      {"linear_probe",
       "top1: the share of pictures that a logistic regression on embeddings, fitted on the training data, gives the "
       "right class; log_loss: its mean cross-entropy on them; l2: its regularization; lr, weight_decay: those of AdamW, where that fitted it."},
      {"depth_probe",
       "Depths are those that a linear map of the image encoder's patches gives, fitted on the logarithm of the training data's. "
       "rms_error: the root of the mean squared error in meters; relative_error: the mean of |predicted - true| / true; "
       "delta1_accuracy: the "
       "share of pixels where the greater of the two is less than 1.25 times the other. Each of an image's known pixels, then the "
       "mean over images."},
      {"knn",
       "top k: the share of pictures whose class is among the k best of a weighted vote of the nearest training "
       "pictures "
       "(cosine)."},
      {"fgovd",
       "accuracy: the share of boxes that are nearer to their phrase than to each of its hard negatives; mean_rank: the place of "
       "the phrase among them, 1 at best. Numbers of several data sets bear the set's name."},
      {"hard_negatives",
       "accuracy: the share of pairs in which the picture is nearer to its right caption than to the wrong one; "
       "mean_category_accuracy: the mean over the kinds of wrong captions. Kinds tell what was done to the right caption, with "
       "SugarCrepe's names: add, something is added; replace, one thing stands for another; swap, two change places; att: an "
       "attribute (a color), obj: an object, rel: a relation (left of)."},
      {"options",
       "accuracy: the share of items whose first option, the right one, is nearer than all others. Of two pictures with "
       "a caption each: text_score, the share of items in which each picture is nearer to its own caption; image_score, "
       "each caption to its own picture; group_score, both. Of two right captions and a wrong one: "
       "image_to_text_accuracy, the picture is nearer to both right ones; text_only_accuracy, these are nearer to each "
       "other than to the wrong one. pair_accuracy, set_accuracy: the share of pairs and of sets of pictures (What's Up) "
       "of which every one is right."},
      {"slot_mask",
       "accuracy: the share of pairs in which the picture is nearer to its right caption than to the wrong one, with "
       "the "
       "trained mask over slots, and (before) without."},
      {"slots",
       "mean_cosine: between each slot of a picture and the same slot of its caption; best_slot_cosine: of the slot "
       "where "
       "it is greatest; peaks: the greatest weight of a slot in picture and text (1: it looks at one place only)."},
      {"interpretability",
       "top k: the share of pictures whose class name is among the k most active of all tokens; median_rank: its place "
       "among them, 1 being the first."},
      {"tokens",
       "caption_precision@k: the share of a picture's k most active tokens that one of its captions contains."},
      {"token_group_iou",
       "Groups of words and annotated phrases are paired so that the sum of their IoU (common words divided by all "
       "words "
       "of both) is greatest; iou, precision, recall and f1 are means over the pairs of a caption, then over captions. "
       "chunks and random: the same of equal chunks and of random groups."},
      {"grad_cam",
       "mean_cosine: between the pictures that are shown and their texts; empty_maps: the share of maps that are 0 "
       "everywhere, where no feature speaks for the text."},
      {"feature_map",
       "pca_variance: the share of the points' variance that two principal components hold; neighbors_kept: of each "
       "point's ten nearest others, the share that are among the ten nearest on the map."},
      {"query", "mean_best_cosine: between each text and its nearest picture, mean over the texts."},
      {"captions",
       "cider_d: how much the caption that the decoder writes agrees in words and their order with the picture's own, words that "
       "few pictures have weighing more (CIDEr-D, 0 to 10); token_accuracy: the share of the tokens of the first caption that the "
       "decoder holds for the likeliest, given those before them."},
      {"referring",
       "accuracy: the share of boxes that the decoder finds from their phrase with an IoU (overlap divided by union) of at least "
       "0.5; mean_iou: the mean of the IoU."},
      {"validation_loss", "loss: the mean of the training objective over batches of data that is not trained on."}};
  const auto found = rules.find(task);
  return found == rules.end() ? "" : found->second + similarity_rule(settings);
}

}  // namespace tessera::report
