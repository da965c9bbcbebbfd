// The operators loader_*, which pass the training loader's batches to Python. python/tessera/loader.py wraps it.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "src/bindings/objective.h"
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

class BoundLoader {
 public:
  /// `vocabulary` has the bytes to use instead of the tokenizer's file, uint8 [n]; empty: read the file. If there is an `objective`, a handle,
  /// the batches have what it needs instead of the settings' views.
  BoundLoader(const std::string& json, const at::Tensor& vocabulary, std::int64_t seed, std::int64_t rank, std::int64_t ranks, bool pinned,
              const std::optional<at::Tensor>& objective) {
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
    const Needs needs = objective ? object_of<BoundObjective>(*objective).needs() : needs_of(settings);
    // Ranks that gather each other's tokens need texts of one length, as in training.
    target.whole_texts = ranks > 1 && objective && std::ranges::any_of(needs.texts, [](const auto& view) {
      return view.second.tokens || view.second.dense;
    });
    loader_ = std::make_unique<Loader>(sources().make(source, "source"), tokenizer_, settings.preprocessing, settings.loader,
                                       needs, static_cast<std::uint64_t>(seed),
                                       RankSlice{static_cast<int>(rank), static_cast<int>(ranks)}, target);
  }

  /// Returns the next batch as a dict of tensors (batch_tensors), together with the keys of its samples.
  std::tuple<Tensors, std::vector<std::string>> next() {
    Batch batch = loader_->next();
    return {batch_tensors(batch), std::move(batch.keys)};
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

TORCH_LIBRARY_FRAGMENT(tessera, library) {
  library.def("loader_make", &Make<BoundLoader, const std::string&, const at::Tensor&, std::int64_t, std::int64_t, std::int64_t, bool,
                                   const std::optional<at::Tensor>&>::call);
  library.def("loader_next", &Method<&BoundLoader::next>::call);
  library.def("loader_batches_per_epoch", &Method<&BoundLoader::batches_per_epoch>::call);
  library.def("loader_position", &Method<&BoundLoader::position>::call);
  library.def("loader_seek", &Method<&BoundLoader::seek>::call);
  library.def("loader_skipped", &Method<&BoundLoader::skipped>::call);
  library.def("loader_tokenizer_identity", &Method<&BoundLoader::tokenizer_identity>::call);
}

}  // namespace tessera
