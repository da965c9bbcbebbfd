#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "src/evaluation/tasks/task_settings.h"
#include <tessera/evaluation/embedder.h>
#include <tessera/evaluation/task.h>

namespace tessera {

/// Settings for the vocabulary whose tokens describe image embeddings (TokenSpace).
struct VocabularySettings {
  std::optional<config::ModuleSettings> vocabulary;
  TextList templates = {"{}"};
};

template <class Visitor>
void fields(Visitor& v, VocabularySettings& s) {
  v("vocabulary", s.vocabulary,
    "tokenizer whose tokens' texts are compared with images, such as {name: wordpiece, vocab: vocab.txt}; null: the model's own. "
    "Leave it out for models whose embeddings are weights of vocabulary tokens");
  v("templates", s.templates, "prompts with {} for a token's text, used if tokens' texts are compared with images");
}

/// Returns readable names for the first `count` ids of a vocabulary, such as "red", or "##ing" for a token that continues a word.
/// If a name is empty or already belongs to an earlier id, the id is appended: "#0", "red#265". All names are distinct.
std::vector<std::string> vocabulary_names(const Tokenizer& tokenizer, std::int64_t count);

/// Throws UserError unless the model has a token_space(). The message names `option`, the setting that needs one.
void require_token_space(const Embedder& model, const std::string& option);

/// A vocabulary whose tokens describe image embeddings: an image gives each token an activation (Chen et al. 2023, section 5). If the model
/// has a token_space(), the activation of a token is its entry in the image's embedding; otherwise it is the similarity of the image with
/// the token's text. Special tokens are not part of the vocabulary.
class TokenSpace {
 public:
  /// `task` is the task's registered name, for messages. The tokens' texts are embedded once for all tasks of `context`. Throws UserError
  /// if the settings name a vocabulary although the model has a token_space(), or if neither the settings nor the model have a vocabulary.
  TokenSpace(const Embedder& model, const EvaluationContext& context, const VocabularySettings& settings, const std::string& task);

  std::int64_t size() const { return std::ssize(names_); }
  /// Returns the readable name of an entry: its name from vocabulary_names(), or the text that represents it in comparisons with images.
  const std::string& name(std::int64_t entry) const { return names_[static_cast<std::size_t>(entry)]; }
  /// Tokenizes a text. Returns the entry (index in this vocabulary) of each token that the vocabulary contains, in the text's order.
  std::vector<std::int64_t> entries_of(const std::string& text) const;
  /// Returns the token id of an entry.
  std::int64_t id(std::int64_t entry) const { return ids_[static_cast<std::size_t>(entry)]; }
  /// Returns the activations of all entries for each image: weights or similarities, floating-point [B, size()].
  at::Tensor activations(const TowerFeatures& images) const;

 private:
  void read_vocabulary(bool by_text);

  const Embedder& model_;
  std::shared_ptr<const Tokenizer> own_;  // the tokenizer in the settings; null if the model's is used
  const Tokenizer* tokenizer_;
  std::vector<std::string> names_;                // names of the entries
  std::vector<std::int64_t> ids_;                 // token ids of the entries
  std::map<std::int64_t, std::int64_t> entries_;  // index of the entry of each token id
  TowerFeatures texts_;                           // features of the entries' texts; undefined if Embedder::token_space() is not 0
};

}  // namespace tessera
