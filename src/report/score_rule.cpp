#include <map>

#include "src/report/score_rule.h"

namespace tessera::report {
namespace {

/// Returns the value of a setting, or an empty text if it is unknown.
std::string setting_of(const config::Node& settings, const char* key) {
  const config::Node* found = settings.find(key);
  return found == nullptr || !found->is_scalar() ? "" : found->text();
}

constexpr const char* kIou =
    " IoU is the overlap of the predicted and the true region of a class divided by their union. image_miou is its mean over the "
    "classes of each image, then over images. dataset_miou is its mean over classes, each computed over all images. Neither counts "
    "the background; dataset_miou_with_background does. pixel_accuracy is the share of pixels with the right class.";

std::string segmentation_rule(const config::Node& settings) {
  const std::string by = setting_of(settings, "by"), candidates = setting_of(settings, "candidates");
  const std::string taker = by == "patches" ? "patch" : by == "groups" ? "group" : "patch or group";
  std::string rule = "Each pixel takes the class whose text is nearest to its " + taker;
  if (candidates == "present")
    rule +=
        ", among the classes that occur in the image's true mask, without the background, whose pixels count as wrong "
        "(candidates: "
        "present).";
  else if (candidates == "all")
    rule += ", among all classes, the background included (candidates: all).";
  else if (candidates == "foreground")
    rule += ", among all classes except the background (candidates: foreground).";
  else
    rule += ", among all classes or only those in the image's true mask (see the setting candidates).";
  const std::string patches = setting_of(settings, "patches");
  if (patches == "conditioned")
    rule += " A text is compared with its pooling of each single patch by the objective's pool (patches: conditioned).";
  if (patches == "attention")
    rule += " A patch's score is the text's attention to it in the objective's pool (patches: attention).";
  const std::string block = setting_of(settings, "last_block");
  if (!block.empty() && block != "plain") rule += " The last block of the ViT is changed as in " + block + " (last_block).";
  return rule + kIou;
}

/// Returns the sentence that the setting `similarity` adds to a task's explanation; empty for `global`.
std::string similarity_rule(const config::Node& settings) {
  const std::string similarity = setting_of(settings, "similarity");
  if (similarity == "conditioned")
    return " A text is compared with the image embedding that the objective's pool makes for it (similarity: conditioned).";
  if (similarity == "topk")
    return " The " + setting_of(settings, "candidates") +
           " texts nearest to an image's embedding are compared with the embeddings that they pool from it, by the objective's pool; "
           "all others rank behind them, with their cosine minus 4 (similarity: topk).";
  return "";
}

}  // namespace

std::string score_rule(const std::string& task, const config::Node& settings) {
  if (task == "segmentation") return segmentation_rule(settings);
  if (task == "segmentation_probe")
    return std::string("Each pixel takes the class that a linear classifier on the image encoder's patches predicts among all classes; "
                       "the classifier is fitted on the training data.") + kIou;
  static const std::map<std::string, std::string> rules = {
      {"zero_shot",
       "top k: the share of images whose class is among the k nearest class texts (cosine). mean_per_class: the mean "
       "over classes of "
       "each class's top 1."},
      {"retrieval",
       "recall@k: the share of captions whose image is among the k nearest of all images (text_to_image), and of "
       "images "
       "with one of their captions among the k nearest of all captions (image_to_text)."},
      {"k_precision",
       "k_precision: the share of the words of an image's nearest caption that occur in the image's own captions, "
       "averaged over "
       "images. k_precision_na: the same for nouns and adjectives only, over captions that have some."},
      {"linear_probe",
       "top1: the share of images that a logistic regression on embeddings, fitted on the training data, classifies "
       "correctly. "
       "log_loss: its mean cross-entropy on them. l2: its regularization. lr, weight_decay: those of AdamW, if AdamW "
       "fitted it."},
      {"depth_probe",
       "A linear map of the image encoder's patches, fitted on the logarithm of the training data's depths, predicts "
       "depths. "
       "rms_error: the root of the mean squared error in meters. relative_error: the mean of |predicted - true| / "
       "true. "
       "delta1_accuracy: the share of pixels where the greater of the two is less than 1.25 times the other. Each is "
       "computed over "
       "an image's known pixels and then averaged over images."},
      {"knn",
       "top k: the share of images whose class is among the k best of a weighted vote of the nearest training images "
       "(cosine)."},
      {"fgovd",
       "accuracy: the share of boxes that are nearer to their phrase than to each of its hard negatives. mean_rank: "
       "the mean rank of "
       "the phrase among them, 1 at best. With several data sets, the names of the numbers begin with the set's name."},
      {"hard_negatives",
       "accuracy: the share of pairs in which the image is nearer to its right caption than to the wrong one. "
       "mean_category_accuracy: the mean over the kinds of wrong captions. A kind names the change to the right "
       "caption, with "
       "SugarCrepe's terms: add, something is added; replace, one thing is replaced by another; swap, two are "
       "exchanged; att, an "
       "attribute (a color); obj, an object; rel, a relation (left of)."},
      {"options",
       "accuracy: the share of items whose right option is nearer than all others. For two images with one caption "
       "each, text_score is "
       "the share of items in which each image is nearer to its own caption, image_score the share in which each "
       "caption is nearer "
       "to its own image, and group_score the share with both. For two right captions and a wrong one, "
       "image_to_text_accuracy is the "
       "share in which the image is nearer to both right ones, and text_only_accuracy the share in which these are "
       "nearer to each "
       "other than to the wrong one. pair_accuracy, set_accuracy: the share of pairs and of sets of images (What's Up) "
       "in which "
       "all items are right."},
      {"slot_mask",
       "accuracy: the share of pairs in which the image is nearer to its right caption than to the wrong one, with the "
       "trained mask "
       "over slots, and (before) without it."},
      {"slots",
       "mean_cosine: the mean cosine between each slot of an image and the same slot of its caption. best_slot_cosine: "
       "that of the "
       "slot where it is greatest. image_peak, text_peak: the mean of a slot's greatest attention weight in image and "
       "text (1: it "
       "attends to a single place)."},
      {"interpretability",
       "top k: the share of images whose class name is among the k most active of all tokens. median_rank: the median "
       "of its rank "
       "among them, from 1."},
      {"tokens",
       "caption_precision@k: the share of an image's k most active tokens that one of its captions contains."},
      {"token_group_iou",
       "Groups of words are matched with annotated phrases so that the sum of their IoU (common words divided by all "
       "words of both) "
       "is greatest. iou, precision, recall and f1 are means over the pairs of a caption, then over captions. chunks "
       "and random: the "
       "same for equal chunks and for random groups."},
      {"grad_cam",
       "mean_cosine: the mean cosine between the images shown and their texts. empty_maps: the share of maps that are "
       "0 everywhere, "
       "because no feature speaks for the text."},
      {"words",
       "Nothing is measured: heat maps show where in an image each word of a text is found."},
      {"feature_map",
       "pca_variance: the share of the points' variance along two principal components. neighbors_kept: the share of "
       "each "
       "point's ten nearest neighbors that are also among its ten nearest on the map."},
      {"query", "mean_best_cosine: the cosine between each text and its nearest image, averaged over the texts."},
      {"captions",
       "cider_d: how well the decoder's caption agrees in words and their order with the image's own captions; words "
       "that occur with "
       "few images weigh more (CIDEr-D, 0 to 10). token_accuracy: the share of the tokens of the first caption that "
       "the decoder "
       "predicts as the most likely, given those before them."},
      {"referring",
       "accuracy: the share of boxes that the decoder finds from their phrase with an IoU (overlap divided by union) "
       "of at least "
       "0.5. mean_iou: the mean of the IoU."},
      {"validation_loss", "loss: the mean of the training objective over batches of held-out data."}};
  const auto found = rules.find(task);
  return found == rules.end() ? "" : found->second + similarity_rule(settings);
}

}  // namespace tessera::report
