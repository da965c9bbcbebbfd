// The operators objective_*: losses on the features of compiled or other towers, and their names in Python.
#include "src/bindings/objective.h"

#include <vector>

#include <nlohmann/json.hpp>

#include "src/distributed/connection.h"
#include "src/training/run/stored_teachers.h"
#include <tessera/base/error.h>
#include <tessera/config/fields.h>
#include <tessera/config/node.h>
#include <tessera/distributed/collectives.h>
#include <tessera/objectives/make_objective.h>

namespace tessera {
namespace {

struct BoundObjectiveSettings {
  config::ModuleSettings objective;
};

template <class Visitor>
void fields(Visitor& v, BoundObjectiveSettings& s) {
  v("objective", s.objective, "as objective of a configuration");
}

/// Calls use(suffix, tensor) for the tensors of a view, apart from its main tensor.
template <class Use>
void for_each_side(TowerInput& view, Use&& use) {
  use("_mask", view.mask);
  use("_grids", view.grids);
  use("_lengths", view.lengths);
  use("_boxes", view.boxes.corners);
  use("_boxes_mask", view.boxes.mask);
  use("_hidden", view.hidden);
}

template <class Use>
void for_each_group(DuplicateGroups& groups, Use&& use) {
  use("image_group", groups.image_group);
  use("caption_group", groups.caption_group);
  use("captions_group", groups.captions_group);
}

/// Calls use(suffix, tensor) for the tensors of a tower's features.
template <class Use>
void for_each_part(TowerFeatures& view, Use&& use) {
  use(".embeddings", view.global);
  use(".tokens", view.tokens);
  use(".mask", view.mask);
  use(".encoder_tokens", view.encoder_tokens);
  use(".dense", view.dense);
  use(".slots", view.slots);
  use(".attention", view.attention);
  use(".present", view.present);
  use(".ids", view.input.ids);
  use(".ids_mask", view.input.mask);
  use(".boxes", view.boxes.corners);
  use(".boxes_mask", view.boxes.mask);
  use(".grids", view.grids);
}

/// Adds defined tensors to a dict.
auto adding_to(Tensors& out) {
  return [&out](const std::string& name, const at::Tensor& tensor) {
    if (tensor.defined()) out.insert(name, tensor);
  };
}

/// Reads the tensors that a dict has.
auto taking_from(const Tensors& tensors) {
  return [&tensors](const std::string& name, at::Tensor& tensor) {
    if (tensors.contains(name)) tensor = tensors.at(name);
  };
}

Features features_of(const Tensors& tensors, const Needs& needs) {
  Features out;
  const auto take = taking_from(tensors);
  const auto read = [&](auto& views, const std::map<std::string, ViewNeeds>& wanted) {
    for (const auto& [name, need] : wanted) {
      TowerFeatures& view = views[name];
      for_each_part(view, [&](const char* part, at::Tensor& tensor) { take(name + part, tensor); });
      for (const auto& [extra, compute] : need.extras) take(concat(name, ".", extra), view.extras[extra]);
      if (need.student && !view.global.defined())
        user_error("the features have no ", name, ".embeddings, which the objective needs: give what model.features(batch, objective) "
                   "returned");
    }
  };
  read(out.images, needs.images);
  read(out.texts, needs.texts);
  for_each_group(out.duplicates, take);
  for (const auto& [name, extra] : needs.extras) take(name, out.extras[name]);
  return out;
}

std::vector<std::string> names_of(const ViewNeeds& needs) {
  std::vector<std::string> out;
  for (const auto& [name, wanted] :
       {std::pair("tokens", needs.tokens), std::pair("dense", needs.dense), std::pair("slots", needs.slots),
        std::pair("attention", needs.attention), std::pair("encoder_tokens", needs.encoder_tokens), std::pair("ids", needs.input_ids),
        std::pair("boxes", needs.boxes), std::pair("regions", needs.regions), std::pair("hidden", needs.hidden.share > 0),
        std::pair("optional", needs.optional)})
    if (wanted) out.emplace_back(name);
  for (const auto& [name, extra] : needs.extras) out.push_back(name);
  return out;
}

nlohmann::json names_of(const std::map<std::string, ViewNeeds>& views) {
  nlohmann::json out = nlohmann::json::object();
  for (const auto& [name, needs] : views) out[name] = names_of(needs);
  return out;
}

ProcessGroup group_of(const std::string& name) { return name.empty() ? ProcessGroup() : torch_group(name); }

Tensors dict_of(const std::vector<std::pair<std::string, at::Tensor>>& values) {
  Tensors out;
  for (const auto& [name, value] : values) out.insert(name, value.detach());
  return out;
}

}  // namespace

Tensors batch_tensors(Batch& batch) {
  Tensors out;
  const auto add = adding_to(out);
  for (auto* views : {&batch.images, &batch.texts})
    for (auto& [name, view] : *views) {
      add(name, view.values());
      for_each_side(view, [&](const char* suffix, const at::Tensor& tensor) { add(name + suffix, tensor); });
    }
  add("labels", batch.labels);
  for_each_group(batch.duplicates, add);
  for (const auto& [name, extra] : batch.extras) add(name, extra);
  return out;
}

Batch batch_of(const Tensors& tensors, const Needs& needs) {
  Batch out;
  const auto take = taking_from(tensors);
  const auto read = [&](auto& views, const std::map<std::string, ViewNeeds>& wanted, bool images) {
    for (const auto& [name, need] : wanted) {
      if (!tensors.contains(name)) user_error("the batch has no ", name, ", which the objective needs: make the Loader with objective=");
      TowerInput& view = views[name];
      const at::Tensor values = tensors.at(name);
      for_each_side(view, [&](const char* suffix, at::Tensor& tensor) { take(name + suffix, tensor); });
      (!images ? view.ids : need.regions ? view.regions : view.grids.defined() ? view.patches : view.pixels) = values;
    }
  };
  read(out.images, needs.images, /*images=*/true);
  read(out.texts, needs.texts, /*images=*/false);
  for_each_group(out.duplicates, take);
  for (const auto& [name, extra] : needs.extras) take(name, out.extras[name]);
  return out;
}

Tensors feature_tensors(Features& features) {
  Tensors out;
  const auto add = adding_to(out);
  for (auto* views : {&features.images, &features.texts})
    for (auto& [name, view] : *views) {
      for_each_part(view, [&](const char* part, const at::Tensor& tensor) { add(name + part, tensor); });
      for (const auto& [extra, tensor] : view.extras) add(concat(name, ".", extra), tensor);
    }
  for_each_group(features.duplicates, add);
  for (const auto& [name, extra] : features.extras) add(name, extra);
  return out;
}

BoundObjective::BoundObjective(const std::string& choice, std::int64_t embed_dim, std::int64_t image_width, std::int64_t vocab_size,
                               const std::optional<at::Tensor>& model, const std::optional<at::Tensor>& logit_scale) {
  const auto settings = config::read<BoundObjectiveSettings>(config::parse_yaml(choice, "tessera.objectives"), "").objective;
  ObjectiveContext context;
  if (model) {
    context = objective_context(dual_encoder_of(*model));
  } else {
    context.embed_dim = embed_dim;
    context.image_width = image_width;
    context.vocab_size = vocab_size;
  }
  if (logit_scale) context.logit_scale = *logit_scale;
  objective_ = make_objective(settings, "objective", context);
  needs_ = objective_->needs();
  if (needs_.teacher()) user_error("objective ", settings.name, ": needs a teacher, which only the program trainer has: train with it");
  if (is_taught(needs_))
    user_error("objective ", settings.name, ": needs stored embeddings of teachers (data.teachers), which only the program trainer reads: "
               "train with it");
}

Tensors BoundObjective::tensors() const {
  Tensors out;
  for (const auto& item : objective_->named_parameters()) out.insert(item.key(), item.value());
  for (const auto& item : objective_->named_buffers()) out.insert(item.key(), item.value());
  return out;
}

std::string BoundObjective::needs_as_json() const {
  return nlohmann::json{{"images", names_of(needs_.images)}, {"texts", names_of(needs_.texts)}}.dump();
}

std::tuple<at::Tensor, Tensors, Tensors> BoundObjective::forward(const Tensors& features, std::int64_t step, std::int64_t total_steps,
                                                                 std::int64_t epoch, std::int64_t seed, const std::string& group) {
  StepContext context;
  context.step = step;
  context.total_steps = total_steps;
  context.epoch = epoch;
  context.seed = static_cast<std::uint64_t>(seed);
  context.training = objective_->is_training();
  context.group = group_of(group);
  const Losses losses = objective_->forward(features_of(features, needs_), context);
  return {losses.total, dict_of(losses.terms), dict_of(losses.statistics)};
}

void BoundObjective::after_step(std::int64_t step) {
  StepContext context;
  context.step = step;
  objective_->after_step(context);
}

TORCH_LIBRARY_FRAGMENT(tessera, library) {
  library.def("objective_make", &Make<BoundObjective, const std::string&, std::int64_t, std::int64_t, std::int64_t,
                                      const std::optional<at::Tensor>&, const std::optional<at::Tensor>&>::call);
  library.def("objective_tensors", &Method<&BoundObjective::tensors>::call);
  library.def("objective_needs", &Method<&BoundObjective::needs_as_json>::call);
  library.def("objective_train", &Method<&BoundObjective::train>::call);
  library.def("objective_forward", &Method<&BoundObjective::forward>::call);
  library.def("objective_after_step", &Method<&BoundObjective::after_step>::call);
  library.def("gather_rows", +[](const at::Tensor& own, const std::string& group) { return gather_rows(own, group_of(group)); });
}

}  // namespace tessera
