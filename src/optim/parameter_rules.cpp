#include <algorithm>
#include <cmath>
#include <fnmatch.h>

#include <ATen/core/Tensor.h>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/models/dual_encoder.h>
#include <tessera/optim/parameter_rules.h>

namespace tessera {
namespace {

void check_pattern(const std::string& pattern, const std::string& key, const std::vector<NamedParameter>& parameters) {
  if (pattern == "image" || pattern == "text") {
    const bool there = std::any_of(parameters.begin(), parameters.end(),
                                   [&](const NamedParameter& each) { return matches(pattern, each.name); });
    if (there) return;
    user_error(key, ": ", pattern, ": this model's ", pattern, " tower has no parameters: leave it out");
  }
  std::vector<std::string> names{"image", "text"};
  for (const NamedParameter& parameter : parameters) {
    if (matches(pattern, parameter.name)) return;
    names.push_back(parameter.name);
  }
  const std::string near = nearest_name(pattern, names);
  user_error(key, ": ", pattern, " matches no parameter",
             near.empty() ? ": use the names in model.safetensors; * matches any characters"
                          : ": did you mean " + near + "?");
}

bool matches_one_of(const std::vector<std::string>& patterns, const std::string& name) {
  return std::any_of(patterns.begin(), patterns.end(), [&](const std::string& each) { return matches(each, name); });
}

}  // namespace

bool of_objective(const std::string& name) {
  return name == "logit_scale" || name == "logit_bias" || name.starts_with("objective.");
}

bool matches(const std::string& pattern, const std::string& name) {
  if (pattern == "image") return is_image_parameter(name);
  if (pattern == "text") return !is_image_parameter(name) && !of_objective(name);
  return ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
}

std::vector<NamedParameter> apply_rules(std::vector<NamedParameter> parameters, const ParameterSettings& settings) {
  for (const std::string& pattern : settings.frozen) check_pattern(pattern, "parameters.frozen", parameters);
  for (std::size_t i = 0; i < settings.groups.size(); ++i) {
    const std::string key = concat("parameters.groups[", i, "].match");
    if (settings.groups[i].match.empty()) user_error(key, ": is empty: name the group's parameters");
    for (const std::string& pattern : settings.groups[i].match) check_pattern(pattern, key, parameters);
  }

  std::vector<NamedParameter> out;
  for (NamedParameter& parameter : parameters) {
    if (matches_one_of(settings.frozen, parameter.name)) {
      parameter.tensor.set_requires_grad(false);
      continue;
    }
    for (const ParameterGroup& group : settings.groups) {
      if (!matches_one_of(group.match, parameter.name)) continue;
      parameter.lr_scale *= group.lr_scale;
      parameter.frozen_steps = std::max(parameter.frozen_steps, group.frozen_steps);
    }
    if (!of_objective(parameter.name))
      parameter.lr_scale *= std::pow(is_image_parameter(parameter.name) ? settings.layer_decay.image : settings.layer_decay.text,
                                     static_cast<double>(parameter.blocks_behind));
    out.push_back(std::move(parameter));
  }
  if (out.empty()) user_error("parameters.frozen: freezes everything: nothing is left to train");
  return out;
}

}  // namespace tessera
