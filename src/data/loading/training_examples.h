#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <tessera/data/loading/loader.h>

namespace tessera {

/// A text as the model sees it.
struct TextExample {
  std::string text;         // decoded from the token ids
  std::int64_t tokens = 0;  // including special tokens
  bool cut = false;         // whether the source's text is longer than the tokenizer's context
};

/// A training sample as the loader prepares it, for display.
struct TrainingExample {
  std::string source;   // label of the mixture component that the sample comes from; empty if the source is not a mixture
  std::string key;
  std::string problem;  // why the sample is skipped; empty: it is not skipped
  std::map<std::string, TextExample> texts;  // keyed by single-text view
  std::map<std::string, std::vector<TextExample>> several;  // keyed by multi-text view; a text without tokens is absent
  std::map<std::string, Image> images;  // augmented images, keyed by pixel view, with an outline around each box
};

/// Returns up to `per_component` samples of each component of a source, spread over the component (for a stream, its first samples). They
/// have the crops and other random choices of the first epoch; if a sample has several captions, the view `caption` shows the first. Throws
/// as the Loader's constructor does.
std::vector<TrainingExample> training_examples(const std::shared_ptr<const Source>& source,
                                               const std::shared_ptr<const Tokenizer>& tokenizer,
                                               const Preprocessing& preprocessing, const LoaderSettings& settings,
                                               const Needs& needs, std::uint64_t seed, std::int64_t per_component);

}  // namespace tessera
