#include <algorithm>
#include <array>
#include <map>
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

enum class RankOrder : std::int64_t { load, read, images, images_read, texts, loss, stop };

constexpr const char* kEmbedding = "embedding a share of a batch";

/// Returns rank 0's order on every rank. The orders of other ranks are ignored.
RankOrder share_order(const ProcessGroup& group, RankOrder order) {
  at::Tensor word = at::full({1}, group.first() ? static_cast<std::int64_t>(order) : -1, at::kLong);
  group.all_reduce(word, Reduction::max, kDay);  // rank 0 may compute metrics for long before its next order
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

/// Runs on all ranks. Each rank embeds those of the images that it has read, and returns the features of all images.
TowerFeatures embed_images_read(const ProcessGroup& group, const Embedder& model, const RankImages& images,
                                const std::vector<std::int64_t>& indices, const ViewNeeds& needs) {
  const RankImages::Part part = images.part_of(indices);
  TowerFeatures features;
  run_on_all_ranks(group, kEmbedding, [&] { features = model.encode_images(image_batch(part.pixels, model.preprocessing()), needs); });
  const std::int64_t count = std::ssize(part.pixels) * group.size();
  return map_tensors(features, [&](const at::Tensor& tensor) { return gathered(group, tensor, count).index_select(0, part.rows); });
}

/// Runs on all ranks. Each rank embeds its share of the texts and returns the embeddings of all texts.
at::Tensor embed_strings(const ProcessGroup& group, const Embedder& model, const std::vector<std::string>& texts) {
  std::vector<std::string> own;
  for (const std::int64_t row : own_rows(group, std::ssize(texts))) own.push_back(texts[static_cast<std::size_t>(row)]);
  at::Tensor rows;
  run_on_all_ranks(group, kEmbedding, [&] { rows = model.encode_texts(own, {}).global; });
  return gathered(group, rows, std::ssize(texts));
}

/// A rank other than 0, which does what rank 0 orders.
class Serving {
 public:
  Serving(ProcessGroup group, const Embedder* model, const EvaluationContext& context, std::string device)
      : group_(std::move(group)), model_(model), context_(context), device_(std::move(device)), images_(group_, context.threads) {}

  void until_stopped() {
    for (;;) {
      const RankOrder order = share_order(group_, RankOrder::stop);
      if (order == RankOrder::stop) return;
      try {
        obey(order);
      } catch (const std::exception& error) {  // rank 0 also gets the error and decides whether to continue
        log::error("rank ", group_.rank(), ": ", error.what());
      }
    }
  }

 private:
  void obey(RankOrder order) {
    if (order == RankOrder::load) load();
    if (order == RankOrder::read) read();
    if (order == RankOrder::loss) measure_loss();
    if (order == RankOrder::texts) embed_strings(group_, *model_, sent());
    if (order != RankOrder::images && order != RankOrder::images_read) return;
    const ViewNeeds needs = share_needs(group_, {});
    if (order == RankOrder::images)
      embed_images(group_, *model_, share_images(group_, {}), needs);
    else
      embed_images_read(group_, *model_, images_, sent(), needs);
  }

  nlohmann::json sent() const { return nlohmann::json::parse(group_.broadcast_text("")); }

  void load() {
    const nlohmann::json order = sent();
    run_on_all_ranks(group_, "loading the model", [&] {
      model_ = nullptr;
      embedder_.reset();
      CheckpointOptions options{.architecture = order.at("architecture"), .state = order.at("state")};
      const auto size = order.at("image_size").get<std::vector<std::int64_t>>();
      if (!size.empty()) options.image_size = config::Size(size[0], size[1]);
      loaded_ = load_for_inference(order.at("checkpoint"), device_, options);
      embedder_ = std::make_unique<DualEncoderEmbedder>(loaded_.model, loaded_.tokenizer);
      model_ = embedder_.get();
      data_ = order.at("data");
      images_ = RankImages(group_, data_.at("threads"));
    });
  }

  void read() {
    const nlohmann::json order = sent();
    const std::string name = order.at("source");
    run_on_all_ranks(group_, "opening the data", [&] {
      std::shared_ptr<const Source>& source = opened_[name];
      if (source == nullptr) source = open_source(in_run(source_order_of(name)), context_);
    });
    images_.read(opened_.at(name), name, model_->preprocessing(), order.at("now"), order.at("next"), order.at("collect"));
  }

  void measure_loss() {
    const nlohmann::json order = sent();
    LossBatches batches{.max_samples = order.at("max_samples"), .threads = context_.threads, .group = group_};
    if (!order.at("batch_size").is_null()) batches.batch_size = order.at("batch_size").get<std::int64_t>();
    run_on_all_ranks(group_, "opening the data", [&] { batches.source = open_source(in_run(source_order_of(order.at("source"))), context_); });
    context_.loss->measure(batches);
  }

  /// Names the run's source in an order without a choice if the context has none, because the model was loaded from a file.
  SourceOrder in_run(SourceOrder order) const {
    const char* const of = order.train ? "train" : "source";
    if (!order.choice && data_.contains(of)) order.choice = source_order_of(data_.at(of)).choice;
    return order;
  }

  ProcessGroup group_;
  const Embedder* model_;
  const EvaluationContext& context_;
  std::string device_;
  RankImages images_;
  InferenceModel loaded_;
  std::unique_ptr<DualEncoderEmbedder> embedder_;
  nlohmann::json data_;
  std::map<std::string, std::shared_ptr<const Source>> opened_;  // by the text of the order
};

}  // namespace

EmbeddingRanks::~EmbeddingRanks() {
  if (group_.size() == 1) return;
  try {
    share_order(group_, RankOrder::stop);
  } catch (const std::exception&) {  // ignored, because the other ranks have already ended
  }
}

void EmbeddingRanks::load(const std::string& checkpoint, const CheckpointOptions& options, const EvaluationData& data) const {
  if (group_.size() == 1) return;
  share_order(group_, RankOrder::load);
  std::vector<std::int64_t> size;
  if (options.image_size) size = {options.image_size->height, options.image_size->width};
  nlohmann::json sources = {{"threads", data.threads}};
  if (data.source) sources["source"] = to_text({.key = "source", .choice = data.source});
  if (data.train) sources["train"] = to_text({.key = "train", .choice = data.train});
  const nlohmann::json order = {{"checkpoint", checkpoint}, {"architecture", options.architecture}, {"image_size", size},
                                {"state", options.state},   {"data", sources}};
  group_.broadcast_text(order.dump());
  run_on_all_ranks(group_, "loading the model", [] {});
}

TowerFeatures RankEmbedder::encode_images(const TowerInput& images, const ViewNeeds& needs) const {
  const ProcessGroup& group = ranks_.group();
  if (group.size() == 1 || images.values().size(0) == 0) return EmbedderView::encode_images(images, needs);
  const bool read = images.pixels.defined() && images.pixels.is_meta();
  share_order(group, read ? RankOrder::images_read : RankOrder::images);
  share_needs(group, needs);
  if (read) {
    group.broadcast_text(nlohmann::json(wanted_).dump());
    return embed_images_read(group, viewed(), images_, wanted_, needs);
  }
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

std::vector<ImageShare::Image> RankEmbedder::read_images(const SourceOrder& order, const std::shared_ptr<const Source>& source,
                                                         const std::vector<std::int64_t>& now, const std::vector<std::int64_t>& next,
                                                         bool collect) const {
  const ProcessGroup& group = ranks_.group();
  const std::string name = to_text(order);
  share_order(group, RankOrder::read);
  group.broadcast_text(nlohmann::json{{"source", name}, {"now", now}, {"next", next}, {"collect", collect}}.dump());
  run_on_all_ranks(group, "opening the data", [] {});
  return images_.read(source, name, preprocessing(), now, next, collect);
}

TaskResult RankEmbedder::measure_loss(const RunLoss& loss, const SourceOrder& order, LossBatches batches) const {
  const ProcessGroup& group = ranks_.group();
  if (group.size() == 1) return loss.measure(batches);
  share_order(group, RankOrder::loss);
  const nlohmann::json size = batches.batch_size ? nlohmann::json(*batches.batch_size) : nlohmann::json();
  group.broadcast_text(nlohmann::json{{"source", to_text(order)}, {"batch_size", size}, {"max_samples", batches.max_samples}}.dump());
  run_on_all_ranks(group, "opening the data", [] {});
  batches.group = group;
  return loss.measure(batches);
}

TowerInput RankEmbedder::images_read(const std::vector<std::int64_t>& indices) const {
  wanted_ = indices;
  const config::Size size = preprocessing().image_size;
  return image_input(at::empty({std::ssize(indices), 3, size.height, size.width}, at::TensorOptions(at::kByte).device(at::kMeta)));
}

void serve_embeddings(const ProcessGroup& group, const Embedder& model, const EvaluationContext& context) {
  Serving(group, &model, context, "").until_stopped();
}

void serve_embeddings(const ProcessGroup& group, const std::string& device) {
  log::set_level(log::Level::error);  // rank 0 logs the same warnings about the model
  Serving(group, nullptr, {}, device).until_stopped();
}

}  // namespace tessera
