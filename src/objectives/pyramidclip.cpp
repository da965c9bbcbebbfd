#include <algorithm>
#include <cctype>

#include <ATen/ATen.h>

#include "src/objectives/pairs/contrast.h"
#include "src/objectives/pairs/features.h"
#include "src/objectives/pyramidclip.h"
#include <tessera/ops/numeric.h>

namespace tessera {
namespace {

const std::map<char, std::string> kImageViews = {{'G', "global"}, {'L', "local"}, {'R', "roi"}};
const std::map<char, std::string> kTextViews = {{'S', "summary"}, {'T', "caption"}, {'A', "objects"}};

struct Group {
  const char* name;
  const std::vector<std::string>* pairs;
  double weight;
};

std::vector<Group> groups_of(const PyramidClipSettings& s) {
  return {{"peer", &s.peer_pairs, 1 - s.cross_global_weight - s.cross_local_weight},
          {"cross_global", &s.cross_global_pairs, s.cross_global_weight},
          {"cross_local", &s.cross_local_pairs, s.cross_local_weight}};
}

bool is_pair(const std::string& name) {
  return name.size() == 2 && kImageViews.contains(name[0]) && kTextViews.contains(name[1]);
}

std::string term_name(const std::string& pair) {
  std::string name = "loss_";
  for (const char letter : pair) name += static_cast<char>(std::tolower(letter));
  return name;
}

}  // namespace

std::optional<config::Problem> validate(const PyramidClipSettings& s) {
  bool any = false;
  for (const Group& group : groups_of(s)) {
    const std::string key = concat(group.name, "_pairs");
    for (std::size_t i = 0; i < group.pairs->size(); ++i) {
      const std::string& name = (*group.pairs)[i];
      if (!is_pair(name))
        return config::Problem{key,
                               concat(name, " is not a pair of views: write one of G, L, R and one of S, T, A, as in GS")};
      if (std::count(group.pairs->begin(), group.pairs->end(), name) > 1)
        return config::Problem{key, name + " is listed twice"};
      any = true;
    }
    // The tolerance allows for rounding errors in the weight of `peer`, which is 1 minus the other two weights.
    if (group.weight < -1e-9)
      return config::Problem{"cross_local_weight",
                             "cross_global_weight and cross_local_weight add up to more than 1"};
  }
  if (!any) return config::Problem{"peer_pairs", "no group has a pair: name at least one"};
  return std::nullopt;
}

PyramidClip::PyramidClip(const PyramidClipSettings& settings, const ObjectiveContext& context)
    : ContrastiveObjective(context), settings_(settings) {
  for (const Group& group : groups_of(settings_))
    for (const std::string& name : *group.pairs) {
      if (group.weight > 0) contrasts_.push_back(term_name(name));
      ContrastSettings& pair = pairs_[name];
      pair.image_view = kImageViews.at(name[0]);
      pair.text_view = kTextViews.at(name[1]);
      pair.skip_absent = true;
      pair.mask_duplicates = settings_.mask_duplicates;
      pair.chunk = settings_.chunk;
      pair.label_smoothing = settings_.label_smoothing;
    }
}

// Every sample has an image and a caption, but it may lack regions, a summary and objects.
Needs PyramidClip::needs() const {
  Needs all{.images = {}, .texts = {}, .duplicates = settings_.mask_duplicates};
  for (const auto& [name, pair] : pairs_) {
    ViewNeeds image, text;
    image.regions = image.optional = pair.image_view == "roi";
    text.optional = pair.text_view != "caption";
    all.images[pair.image_view] = image;
    all.texts[pair.text_view] = text;
  }
  return all;
}

at::Tensor PyramidClip::pair_loss(const ContrastSettings& pair, const Features& features,
                                  const ProcessGroup& group) const {
  const PairFeatures both =
      pair_features(features, "pyramidclip", pair, {.image_global = true, .text_global = true}, group);
  return global_contrast(both.image_global, both.text_global, scale(both.dtype()), {pair.chunk, settings_.local_loss},
                         group, both.relation)
      .loss;
}

Losses PyramidClip::forward(const Features& features, const StepContext& context) {
  const NoAutocast no_autocast;
  std::map<std::string, at::Tensor> losses;
  for (const auto& [name, pair] : pairs_) losses[name] = pair_loss(pair, features, context.group);

  Losses out;
  const at::Tensor zero = at::zeros_like(losses.begin()->second);
  for (const Group& group : groups_of(settings_)) {
    at::Tensor mean = zero;
    for (const std::string& name : *group.pairs) mean = mean + losses[name] / static_cast<double>(group.pairs->size());
    out.add(concat("loss_", group.name), group.weight, mean);
  }
  for (const auto& [name, loss] : losses) out.terms.emplace_back(term_name(name), loss);
  return out;
}

}  // namespace tessera
