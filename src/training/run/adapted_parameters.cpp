#include "src/training/run/adapted_parameters.h"

#include <algorithm>
#include <set>

#include <ATen/core/Tensor.h>

#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera {
namespace {

bool matches_one_of(const std::vector<std::string>& patterns, const std::string& name) {
  return std::ranges::any_of(patterns, [&](const std::string& each) { return matches(each, name); });
}

/// The parameters of one adapted encoder.
class AdaptedEncoder {
 public:
  AdaptedEncoder(const Encoder& encoder, const LoraSettings& settings, std::string path)
      : settings_(settings), path_(std::move(path)) {
    for (const at::Tensor& parameter : encoder.parameters()) own_.insert(parameter.unsafeGetTensorImpl());
  }

  bool has(const NamedParameter& parameter) const { return own_.contains(parameter.tensor.unsafeGetTensorImpl()); }
  bool trains(const NamedParameter& parameter) const {
    return is_adapter(parameter.name) || matches_one_of(settings_.trained, parameter.name);
  }

  void check(const std::vector<NamedParameter>& parameters, const std::vector<std::string>& frozen) const {
    for (const NamedParameter& each : parameters)
      for (const std::string& pattern : frozen)
        if (has(each) && trains(each) && matches(pattern, each.name))
          user_error("parameters.frozen: ", pattern, " freezes ", each.name, ", which ", path_,
                     " trains: the encoder's own weights are frozen in any case; leave the pattern out, or remove the adapters "
                     "with ",
                     path_, ".blocks or ", path_, ".layers");
    for (const std::string& pattern : settings_.trained) check_trained(pattern, parameters);
  }

 private:
  void check_trained(const std::string& pattern, const std::vector<NamedParameter>& parameters) const {
    std::vector<std::string> names;
    for (const NamedParameter& each : parameters) {
      if (!has(each) || is_adapter(each.name)) continue;
      if (matches(pattern, each.name)) return;
      names.push_back(each.name);
    }
    const std::string near = nearest_name(pattern, names);
    user_error(path_, ".trained: ", pattern, " matches no parameter of the encoder",
               near.empty() ? "; parameters after the encoder are trained unless parameters.frozen names them" : ": did you mean " + near + "?");
  }

  const LoraSettings& settings_;
  std::string path_;
  std::set<const void*> own_;
};

}  // namespace

std::vector<NamedParameter> apply_rules_and_adapt(std::vector<NamedParameter> parameters, const DualEncoder& model,
                                                  const ParameterSettings& rules, const AdaptSettings& settings) {
  std::vector<AdaptedEncoder> adapted;
  if (settings.image) adapted.emplace_back(model.image_tower().encoder(), *settings.image->lora, "adapt.image.lora");
  if (settings.text) adapted.emplace_back(model.text_tower().encoder(), *settings.text->lora, "adapt.text.lora");
  for (const AdaptedEncoder& encoder : adapted) encoder.check(parameters, rules.frozen);
  std::vector<NamedParameter> out = apply_rules(std::move(parameters), rules);
  std::erase_if(out, [&](const NamedParameter& parameter) {
    const bool base = std::ranges::any_of(
        adapted, [&](const AdaptedEncoder& encoder) { return encoder.has(parameter) && !encoder.trains(parameter); });
    if (base) parameter.tensor.set_requires_grad(false);
    return base;
  });
  return out;
}

}  // namespace tessera
