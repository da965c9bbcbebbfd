#include <tessera/features.h>

#include <algorithm>

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera {
namespace {

template <class View>
const View& find_view(const std::map<std::string, View>& views, const std::string& name, const char* kind) {
  const auto found = views.find(name);
  if (found != views.end()) return found->second;
  std::vector<std::string> names;
  for (const auto& [each, view] : views) names.push_back(each);
  TORCH_CHECK(false, "no ", kind, " view named ", name, "; there are: ", join_names(names));
}

at::Tensor repeated_rows(const at::Tensor& tensor, std::int64_t count) {
  return tensor.index_select(0, at::arange(count, tensor.options().dtype(at::kLong)).remainder(tensor.size(0)));
}

at::Tensor moved(const at::Tensor& tensor, const at::Device& device) {
  return tensor.to(device, tensor.scalar_type(), /*non_blocking=*/true);
}

// Returns a `teacher_captions` that satisfies both needs: 0 (all captions) if one of the two is 0, and otherwise the
// larger number.
std::int64_t most_captions(const ViewNeeds& a, const ViewNeeds& b) {
  if (!a.teacher || !b.teacher) return a.teacher ? a.teacher_captions : b.teacher_captions;
  if (a.teacher_captions == 0 || b.teacher_captions == 0) return 0;
  return std::max(a.teacher_captions, b.teacher_captions);
}

void merge_views(std::map<std::string, ViewNeeds>& into, const std::map<std::string, ViewNeeds>& more) {
  for (const auto& [name, view] : more) {
    const auto [place, fresh] = into.emplace(name, view);
    if (fresh) continue;
    ViewNeeds& both = place->second;
    TORCH_CHECK(both.regions == view.regions, "image view ", name,
                " is asked for as pixels by one objective and as region features by another");
    both.tokens |= view.tokens;
    both.dense |= view.dense;
    both.slots |= view.slots;
    both.attention |= view.attention;
    both.encoder_tokens |= view.encoder_tokens;
    both.input_ids |= view.input_ids;
    both.boxes |= view.boxes;
    if (both.student && view.student && both.hidden != view.hidden)
      user_error("objective: one of the objectives hides patches of the image view ", name,
                 ", and another wants it whole or with others hidden: give masked_prediction a view of its own (the setting "
                 "`view`, and its crops in data.loader.views)");
    if (view.student) both.hidden = view.hidden;
    both.student |= view.student;
    both.optional &= view.optional;
    both.teacher_captions = most_captions(both, view);
    if (both.taught != 0 && view.taught != 0 && both.taught != view.taught)
      user_error("objective: two objectives need stored embeddings of teachers of the view ", name, ", one ", both.taught, " and one ",
                 view.taught, " wide, but a run has those of one data.teachers: give both the same teachers");
    both.taught = std::max(both.taught, view.taught);
    both.teacher |= view.teacher;
    if (both.teacher && both.taught > 0)
      user_error("objective: one of the objectives learns from stored embeddings of the view ", name,
                 ", and another from a teacher's features of it: leave out one of the two, or give it another view");
    both.extras.insert(view.extras.begin(), view.extras.end());
  }
}

std::string teacher_name(const std::optional<std::string>& model) {
  return model ? concat("the model ", *model) : "the moving average of the trained model";
}

}  // namespace

bool Needs::teacher() const {
  for (const auto* views : {&images, &texts})
    for (const auto& [name, view] : *views)
      if (view.teacher) return true;
  return false;
}

void Needs::merge(const Needs& other) {
  if (teacher() && other.teacher() && teacher_model != other.teacher_model)
    user_error("objective: a run has one teacher, but the objectives need ", teacher_name(teacher_model), " and ",
               teacher_name(other.teacher_model), ": leave out one of the two");
  if (other.teacher()) teacher_model = other.teacher_model;
  merge_views(images, other.images);
  merge_views(texts, other.texts);
  duplicates |= other.duplicates;
  extras.insert(other.extras.begin(), other.extras.end());
}

bool holds_several_texts(const std::string& view) {
  return view == kCaptions || view == kNegatives || view == kPhrases || view == kPhraseNegatives;
}

TowerInput TowerInput::to(const at::Device& device) const {
  TowerInput out = map_tensors(*this, [&](const at::Tensor& tensor) { return moved(tensor, device); });
  out.lengths = lengths;
  out.grids = grids;
  return out;
}

Batch Batch::to(const at::Device& device) const {
  Batch out = *this;
  for (auto* views : {&out.images, &out.texts})
    for (auto& [name, view] : *views) view = view.to(device);
  for (at::Tensor* numbers : {&out.labels, &out.duplicates.image_group, &out.duplicates.caption_group,
                              &out.duplicates.captions_group})
    if (numbers->defined()) *numbers = moved(*numbers, device);
  for (auto& [name, extra] : out.extras) extra = moved(extra, device);
  return out;
}

std::map<std::string, at::Tensor> example_extras(const Needs& needs, std::int64_t count, const at::Device& device) {
  std::map<std::string, at::Tensor> out;
  for (const auto& [name, extra] : needs.extras) out[name] = repeated_rows(extra.example.unsqueeze(0).to(device), count);
  return out;
}

Batch slice(const Batch& batch, std::int64_t first, std::int64_t count) {
  Batch out = map_tensors(batch, [&](const at::Tensor& tensor) { return tensor.narrow(0, first, count); });
  out.keys.assign(batch.keys.begin() + first, batch.keys.begin() + first + count);
  return out;
}

Batch repeated(const Batch& batch, std::int64_t count) {
  Batch out = map_tensors(batch, [&](const at::Tensor& tensor) { return repeated_rows(tensor, count); });
  out.keys.clear();
  for (std::int64_t i = 0; i < count; ++i) out.keys.push_back(batch.keys[static_cast<std::size_t>(i % batch.size())]);
  return out;
}

const TowerFeatures& Features::image(const std::string& view) const {
  return find_view(images, view, "image");
}
const TowerFeatures& Features::text(const std::string& view) const {
  return find_view(texts, view, "text");
}
const TowerFeatures& Features::teacher_image(const std::string& view) const {
  return find_view(teacher_images, view, "teacher's image");
}
const TowerFeatures& Features::teacher_text(const std::string& view) const {
  return find_view(teacher_texts, view, "teacher's text");
}

void add_taught(const Batch& batch, const Needs& needs, Features& features) {
  const auto add = [](const auto& inputs, const auto& views, auto& taught) {
    for (const auto& [name, view] : views)
      if (const auto input = inputs.find(name); view.taught > 0 && input != inputs.end() && input->second.taught.defined())
        taught[name].global = input->second.taught;
  };
  add(batch.images, needs.images, features.teacher_images);
  add(batch.texts, needs.texts, features.teacher_texts);
}

Features joined(const std::vector<Features>& chunks) {
  std::vector<std::vector<at::Tensor>> pieces;  // [tensor][chunk]
  for (const Features& chunk : chunks) {
    std::size_t place = 0;
    for_each_tensor(chunk, [&](const at::Tensor& tensor) {
      if (place == pieces.size()) pieces.emplace_back();
      pieces[place++].push_back(tensor);
    });
  }
  Features out = chunks.front();
  std::size_t place = 0;
  for_each_tensor(out, [&](at::Tensor& tensor) {
    const std::vector<at::Tensor>& parts = pieces[place++];
    if (tensor.defined()) tensor = at::cat(parts);
  });
  return out;
}

void require_gradients(Features& features) {
  for (auto* views : {&features.images, &features.texts})
    for (auto& [name, view] : *views) {
      const Boxes given = view.boxes;
      for_each_tensor(view, [](at::Tensor& tensor) {
        if (tensor.defined() && tensor.is_floating_point()) tensor = tensor.detach().requires_grad_(true);
      });
      view.boxes = given;
    }
}

Features repeated_leaves(const Features& features, std::int64_t count) {
  Features out =
      map_tensors(features, [&](const at::Tensor& tensor) { return repeated_rows(tensor.detach(), count); });
  require_gradients(out);
  for_each_tensor(out.duplicates, [&](at::Tensor& group) {
    if (group.defined()) group = at::arange(group.numel(), group.options()).view_as(group);
  });
  return out;
}

}  // namespace tessera
