#include <algorithm>
#include <array>
#include <memory>

#include <ATen/ATen.h>
#include <nlohmann/json.hpp>

#include "src/base/dump_utf8.h"
#include "src/distributed/agreement.h"
#include "src/evaluation/rank_embedder.h"
#include <tessera/base/log.h>
#include <tessera/evaluation/inference.h>

namespace tessera {
namespace {

enum class RankOrder : std::int64_t { load, images, texts, stop };

constexpr const char* kEmbedding = "embedding a share of a batch";

/// Returns rank 0's order on every rank. The orders of other ranks are ignored.
RankOrder share_order(const ProcessGroup& group, RankOrder order) {
  at::Tensor word = at::full({1}, static_cast<std::int64_t>(order), at::kLong);
  group.broadcast(word);
  return static_cast<RankOrder>(word.item<std::int64_t>());
}

/// Returns rank 0's `needs` on every rank.
ViewNeeds share_needs(const ProcessGroup& group, const ViewNeeds& needs) {
  constexpr std::array kFlags = {&ViewNeeds::tokens, &ViewNeeds::dense, &ViewNeeds::slots, &ViewNeeds::attention,
                                 &ViewNeeds::encoder_tokens};
  at::Tensor sent = at::empty({std::ssize(kFlags) + 1}, at::kLong);
  auto* const of = sent.data_ptr<std::int64_t>();
  std::ranges::transform(kFlags, of, [&](bool ViewNeeds::*flag) { return needs.*flag; });
  of[kFlags.size()] = static_cast<std::int64_t>(needs.last_block);
  group.broadcast(sent);
  ViewNeeds out{.last_block = static_cast<LastBlock>(of[kFlags.size()])};
  for (std::size_t i = 0; i < kFlags.size(); ++i) out.*kFlags[i] = of[i] != 0;
  TORCH_CHECK(!group.first() || out == needs, "an evaluation task has a need that the ranks do not send");
  return out;
}

/// Returns rank 0's tensor on every rank. The tensors of other ranks are ignored.
at::Tensor share_tensor(const ProcessGroup& group, const at::Tensor& tensor) {
  constexpr std::int64_t kMostDims = 5;
  at::Tensor head = at::zeros({2 + kMostDims}, at::kLong);  // number of dimensions (-1 if the tensor is undefined), type, sizes
  auto* const of = head.data_ptr<std::int64_t>();
  if (group.first()) {
    of[0] = tensor.defined() ? tensor.dim() : -1;
    of[1] = tensor.defined() ? static_cast<std::int64_t>(tensor.scalar_type()) : 0;
    if (tensor.defined()) std::ranges::copy(tensor.sizes(), of + 2);
  }
  group.broadcast(head);
  if (of[0] < 0) return {};
  const auto type = static_cast<at::ScalarType>(of[1]);
  const at::ScalarType sent = type == at::kBool ? at::kByte : type;
  at::Tensor all = group.first() ? tensor.to(sent).contiguous() : at::empty(at::IntArrayRef(of + 2, static_cast<std::size_t>(of[0])), sent);
  group.broadcast(all);
  return all.to(type);
}

/// Returns rank 0's images on every rank. The images of other ranks are ignored.
TowerInput share_images(const ProcessGroup& group, TowerInput images) {
  for (at::Tensor* tensor : {&images.pixels, &images.patches, &images.mask, &images.grids})
    *tensor = share_tensor(group, *tensor);
  return images;
}

/// Returns the rows that this rank embeds. Every rank gets the same number of rows, as all_gather() requires. To reach this
/// number, the last row is repeated.
std::vector<std::int64_t> own_rows(const ProcessGroup& group, std::int64_t count) {
  const std::int64_t share = (count + group.size() - 1) / group.size();
  std::vector<std::int64_t> rows;
  for (std::int64_t i = 0; i < share; ++i) rows.push_back(std::min(group.rank() * share + i, count - 1));
  return rows;
}

at::Tensor gathered(const ProcessGroup& group, const at::Tensor& own, std::int64_t count) {
  const bool truth = own.scalar_type() == at::kBool;
  const at::Tensor all = group.all_gather((truth ? own.to(at::kByte) : own).contiguous()).narrow(0, 0, count);
  return truth ? all.to(at::kBool) : all;
}

/// Runs on all ranks. Each rank embeds its share of the images and returns the features of all images.
TowerFeatures embed_images(const ProcessGroup& group, const Embedder& model, const TowerInput& images, const ViewNeeds& needs) {
  const std::int64_t count = images.values().size(0);
  const at::Tensor rows = at::tensor(own_rows(group, count), at::kLong);
  const TowerInput own = map_tensors(images, [&](const at::Tensor& tensor) { return tensor.index_select(0, rows); });
  TowerFeatures features;
  run_on_all_ranks(group, kEmbedding, [&] { features = model.encode_images(own, needs); });
  return map_tensors(features, [&](const at::Tensor& tensor) { return gathered(group, tensor, count); });
}

/// Runs on all ranks. Each rank embeds its share of the texts and returns the embeddings of all texts.
at::Tensor embed_strings(const ProcessGroup& group, const Embedder& model, const std::vector<std::string>& texts) {
  std::vector<std::string> own;
  for (const std::int64_t row : own_rows(group, std::ssize(texts))) own.push_back(texts[static_cast<std::size_t>(row)]);
  at::Tensor rows;
  run_on_all_ranks(group, kEmbedding, [&] { rows = model.encode_texts(own, {}).global; });
  return gathered(group, rows, std::ssize(texts));
}

/// The model on a rank other than 0. Commands from rank 0 make this rank load or run the model.
class ServedModel {
 public:
  ServedModel(const ProcessGroup& group, std::string device) : group_(group), device_(std::move(device)) {}

  void load() {
    const auto order = nlohmann::json::parse(group_.broadcast_text(""));
    run_on_all_ranks(group_, "loading the model", [&] {
      embedder_.reset();
      CheckpointOptions options{.architecture = order.at("architecture"), .state = order.at("state")};
      const auto size = order.at("image_size").get<std::vector<std::int64_t>>();
      if (!size.empty()) options.image_size = config::Size(size[0], size[1]);
      loaded_ = load_for_inference(order.at("checkpoint"), device_, options);
      embedder_ = std::make_unique<DualEncoderEmbedder>(loaded_.model, loaded_.tokenizer);
    });
  }
  void images() const {
    const ViewNeeds needs = share_needs(group_, {});
    embed_images(group_, *embedder_, share_images(group_, {}), needs);
  }
  void texts() const { embed_strings(group_, *embedder_, nlohmann::json::parse(group_.broadcast_text(""))); }

 private:
  const ProcessGroup& group_;
  std::string device_;
  InferenceModel loaded_;
  std::unique_ptr<DualEncoderEmbedder> embedder_;
};

}  // namespace

EmbeddingRanks::~EmbeddingRanks() {
  if (group_.size() == 1) return;
  try {
    share_order(group_, RankOrder::stop);
  } catch (const std::exception&) {  // ignored, because the other ranks have already ended
  }
}

void EmbeddingRanks::load(const std::string& checkpoint, const CheckpointOptions& options) const {
  if (group_.size() == 1) return;
  share_order(group_, RankOrder::load);
  std::vector<std::int64_t> size;
  if (options.image_size) size = {options.image_size->height, options.image_size->width};
  const nlohmann::json order = {
      {"checkpoint", checkpoint}, {"architecture", options.architecture}, {"image_size", size}, {"state", options.state}};
  group_.broadcast_text(order.dump());
  run_on_all_ranks(group_, "loading the model", [] {});
}

TowerFeatures RankEmbedder::encode_images(const TowerInput& images, const ViewNeeds& needs) const {
  const ProcessGroup& group = ranks_.group();
  if (group.size() == 1 || images.values().size(0) == 0) return EmbedderView::encode_images(images, needs);
  share_order(group, RankOrder::images);
  share_needs(group, needs);
  return embed_images(group, viewed(), share_images(group, images), needs);
}

TowerFeatures RankEmbedder::encode_texts(const std::vector<std::string>& texts, const ViewNeeds& needs) const {
  const ProcessGroup& group = ranks_.group();
  if (group.size() == 1 || texts.empty() || needs != ViewNeeds{} || !compares_by_cosine())
    return EmbedderView::encode_texts(texts, needs);
  if (const auto* model = dynamic_cast<const DualEncoderEmbedder*>(&viewed())) model->count_cut_texts(texts);
  share_order(group, RankOrder::texts);
  group.broadcast_text(dump_utf8(nlohmann::json(texts)));
  TowerFeatures out;
  out.global = embed_strings(group, viewed(), texts);
  return out;
}

void serve_embeddings(const ProcessGroup& group, const std::string& device) {
  log::set_level(log::Level::error);  // rank 0 logs the same warnings about the model
  ServedModel model(group, device);
  for (;;) {
    const RankOrder order = share_order(group, RankOrder::stop);
    if (order == RankOrder::stop) return;
    try {
      if (order == RankOrder::load) model.load();
      if (order == RankOrder::images) model.images();
      if (order == RankOrder::texts) model.texts();
    } catch (const std::exception& error) {  // rank 0 also gets the error and decides whether to continue
      log::error("rank ", group.rank(), ": ", error.what());
    }
  }
}

}  // namespace tessera
