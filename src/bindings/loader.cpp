// The TorchScript class tessera.Loader, which passes the training loader's batches to Python. python/tessera/loader.py wraps it.
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include <torch/custom_class.h>

#include "src/bindings/tokenizer.h"
#include <tessera/base/error.h>
#include <tessera/config/fields.h>
#include <tessera/config/node.h>
#include <tessera/data/loading/loader.h>
#include <tessera/data/source.h>
#include <tessera/data/tokenizers/tokenizer.h>

namespace tessera {

/// The settings that python/tessera/loader.py passes as JSON, which is valid YAML.
struct BoundLoaderSettings {
  config::ModuleSettings source;
  std::optional<config::ModuleSettings> tokenizer;
  Preprocessing preprocessing;
  LoaderSettings loader;
  std::vector<std::string> images = {"image"};
  std::vector<std::string> texts = {"caption"};
};

template <class Visitor>
void fields(Visitor& v, BoundLoaderSettings& s) {
  v("source", s.source, "the data");
  v("tokenizer", s.tokenizer, "the tokenizer; null: no texts");
  v("preprocessing", s.preprocessing, "the size of images and their preprocessing");
  v("loader", s.loader, "as data.loader of a configuration");
  v("images", s.images, "image views");
  v("texts", s.texts, "text views");
}

namespace {

Needs needs_of(const BoundLoaderSettings& settings) {
  Needs needs;
  needs.images.clear();
  needs.texts.clear();
  for (const std::string& name : settings.images) needs.images[name] = {};
  if (settings.tokenizer)
    for (const std::string& name : settings.texts) needs.texts[name] = {};
  return needs;
}

class BoundLoader : public torch::CustomClassHolder {
 public:
  /// `vocabulary` has the bytes to use instead of the tokenizer's file, uint8 [n]; empty: read the file.
  BoundLoader(const std::string& json, const at::Tensor& vocabulary, std::int64_t seed, std::int64_t rank,
              std::int64_t ranks, bool pinned) {
    if (rank < 0 || rank >= ranks)
      user_error("rank ", rank, " of world_size ", ranks, ": expected world_size processes with the ranks 0 to world_size - 1");
    auto settings = config::read<BoundLoaderSettings>(config::parse_yaml(json, "tessera.Loader"), "");
    const config::ModuleSettings source = sources().resolve(settings.source, "source");
    if (settings.tokenizer)
      tokenizer_ = tokenizers().make(tokenizers().resolve(*settings.tokenizer, "tokenizer"), "tokenizer",
                                     TokenizerContext{std::string(view_of(vocabulary)), ""});
    LoaderTarget target;
    target.pinned = pinned;
    target.share_setting = "max_bad_share=";
    loader_ = std::make_unique<Loader>(sources().make(source, "source"), tokenizer_, settings.preprocessing, settings.loader,
                                       needs_of(settings), static_cast<std::uint64_t>(seed),
                                       RankSlice{static_cast<int>(rank), static_cast<int>(ranks)}, target);
  }

  /// Returns the next batch as a dict of tensors, together with the keys of its samples. The main tensor of a view has the view's name.
  /// Its other tensors have the view's name with a suffix ("_mask").
  std::tuple<c10::Dict<std::string, at::Tensor>, std::vector<std::string>> next() {
    Batch batch = loader_->next();
    c10::Dict<std::string, at::Tensor> tensors;
    const auto add = [&](const std::string& name, const at::Tensor& tensor) {
      if (tensor.defined()) tensors.insert(name, tensor);
    };
    for (const auto* views : {&batch.images, &batch.texts})
      for (const auto& [name, view] : *views) {
        add(name, view.values());
        add(name + "_mask", view.mask);
        add(name + "_grids", view.grids);
        add(name + "_lengths", view.lengths);
        add(name + "_boxes", view.boxes.corners);
        add(name + "_boxes_mask", view.boxes.mask);
      }
    add("labels", batch.labels);
    return {std::move(tensors), std::move(batch.keys)};
  }

  std::int64_t batches_per_epoch() const { return loader_->batches_per_epoch(); }

  /// Returns the position of the next batch: its epoch, and the number of samples before it in this epoch.
  std::tuple<std::int64_t, std::int64_t> position() const {
    const DataPosition position = loader_->position();
    return {position.epoch, position.cursor};
  }
  void seek(std::int64_t epoch, std::int64_t cursor) { loader_->seek({epoch, cursor}); }

  /// Returns how many samples were skipped, for each reason.
  c10::Dict<std::string, std::int64_t> skipped() const {
    c10::Dict<std::string, std::int64_t> out;
    for (const auto& [reason, count] : loader_->statistics().skipped) out.insert(reason, count);
    return out;
  }

  std::string tokenizer_identity() const { return tokenizer_ ? identity_of(*tokenizer_) : ""; }

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::unique_ptr<Loader> loader_;
};

}  // namespace

[[maybe_unused, gnu::used]] const auto bound_loader =
    torch::class_<BoundLoader>("tessera", "Loader")
        .def(torch::init<std::string, at::Tensor, std::int64_t, std::int64_t, std::int64_t, bool>())
        .def("next", &BoundLoader::next)
        .def("batches_per_epoch", &BoundLoader::batches_per_epoch)
        .def("position", &BoundLoader::position)
        .def("seek", &BoundLoader::seek)
        .def("skipped", &BoundLoader::skipped)
        .def("tokenizer_identity", &BoundLoader::tokenizer_identity);

}  // namespace tessera
