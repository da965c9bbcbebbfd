#include <filesystem>

#include "src/data/formats/data_files.h"
#include "src/evaluation/tasks/task_settings.h"
#include <tessera/base/text.h>
#include <tessera/config/file_path.h>

namespace tessera {
namespace {

std::optional<config::Problem> check_topk(const std::vector<std::int64_t>& topk) {
  if (topk.empty()) return config::Problem{"topk", "is empty: give at least one number, such as [1, 5]"};
  return std::nullopt;
}

std::optional<config::Problem> check_similarity(const SimilaritySettings& compared, bool text_encoder_free) {
  if (text_encoder_free && compared.similarity != "global")
    return config::Problem{"similarity", concat("is ", compared.similarity, ", which needs the text tower, but "
                                                "text_encoder_free leaves it out: set one of the two to its default")};
  return std::nullopt;
}

}  // namespace

TextList config::Value<TextList>::read(const Node& node, const std::string& path, const TextList&) {
  TextList out;
  if (node.is_sequence()) {
    out.items = Value<std::vector<std::string>>::read(node, path, {});
    return out;
  }
  const std::string text = Value<std::string>::read(node, path, {});
  if (text.find("{}") != std::string::npos) return {text};  // the text itself is a template, not a file's name
  const FilePath file = Value<FilePath>::read(node, path, {});
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(file.name, ignored)) {
    fail(node, path,
         concat("there is no file \"", text, "\"", searched_text(file.searched),
                ": give a list, or a file with one item per line"));
  }
  out.items = read_list(file);
  if (out.items.empty()) fail(node, path, concat(file, " is empty: expected one item per line"));
  return out;
}

std::optional<config::Problem> check_templates(const TextList& templates) {
  if (templates.items.empty())
    return config::Problem{"templates", "is empty: give at least one, such as \"a photo of a {}.\""};
  for (std::size_t i = 0; i < templates.items.size(); ++i) {
    if (templates.items[i].find("{}") == std::string::npos) {
      return config::Problem{"templates", concat("template ", i + 1, ", \"", templates.items[i],
                                                 "\", has no {} where the class name goes")};
    }
  }
  return std::nullopt;
}

std::optional<config::Problem> validate(const ZeroShotSettings& settings) {
  if (auto problem = check_topk(settings.topk)) return problem;
  if (auto problem = check_similarity(settings.compared, settings.text_encoder_free)) return problem;
  return check_templates(settings.templates);
}

std::optional<config::Problem> validate(const RetrievalSettings& settings) {
  if (auto problem = check_similarity(settings.compared, settings.text_encoder_free)) return problem;
  return check_topk(settings.topk);
}

std::optional<config::Problem> validate(const SegmentationSettings& settings) {
  if (settings.by == "groups" && settings.last_block != "plain")
    return config::Problem{"last_block", "changes the patches, but `by` is groups: set one of the two to its default"};
  if (settings.by == "groups" && settings.windows)
    return config::Problem{"windows", "is for patches, but `by` is groups: set one of the two to its default"};
  if (settings.by == "groups" && settings.background_threshold)
    return config::Problem{"background_threshold", "is for patches, but `by` is groups: set one of the two to its default"};
  if (settings.by == "groups" && settings.patches != "cosine")
    return config::Problem{"patches", "sets how patches are compared, but `by` is groups: set one of the two to its default"};
  if (settings.patches != "cosine" && settings.last_block != "plain")
    return config::Problem{"last_block", concat("changes the patch embeddings, but `patches` is ", settings.patches,
                                                ", whose pool was trained on plain ones: set one of the two to its default")};
  if (settings.patches == "attention" && settings.background_threshold && settings.threshold_of == "probability")
    return config::Problem{"threshold_of", "is probability, which needs cosines, but patches: attention gives weights: take cosine, "
                                           "and background_threshold applies to the weight"};
  return check_templates(settings.templates);
}

std::optional<config::Problem> validate(const InterpretabilitySettings& settings) {
  if (auto problem = check_topk(settings.topk)) return problem;
  return check_templates(settings.space.templates);
}

std::optional<config::Problem> validate(const TokenImageSettings& settings) {
  return check_templates(settings.space.templates);
}

namespace {

std::optional<config::Problem> check_adamw_probe(const LinearProbeSettings& settings) {
  if (settings.l2) return config::Problem{"l2", "belongs to solver: lbfgs; with adamw set weight_decays"};
  for (const auto& [key, list] : {std::pair("learning_rates", settings.learning_rates), {"weight_decays", settings.weight_decays}})
    if (list.empty()) return config::Problem{key, "is empty: give at least one"};
  if (settings.validation_share == 0 && settings.learning_rates.size() * settings.weight_decays.size() > 1)
    return config::Problem{"validation_share",
                           "is 0, but the sweep over learning_rates and weight_decays needs held-out samples: give one of "
                           "each, or a share above 0"};
  return std::nullopt;
}

}  // namespace

std::optional<config::Problem> validate(const LinearProbeSettings& settings) {
  if (settings.solver == "adamw") return check_adamw_probe(settings);
  if (!settings.l2 && settings.validation_share == 0) {
    return config::Problem{"validation_share",
                           "is 0, but l2 is null and its sweep needs held-out samples: set l2, or a share above 0"};
  }
  return std::nullopt;
}

}  // namespace tessera
