#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <tessera/evaluation/embedder.h>
#include <tessera/evaluation/task.h>
#include <tessera/evaluation/tasks/task_settings.h>

namespace tessera {

/// What people call the first `count` ids of a vocabulary: "red", "##ing" for what continues a word, and where that
/// says nothing or an id before has the name, the id too: "#0", "red#265". No two are equal.
std::vector<std::string> vocabulary_names(const Tokenizer& tokenizer, std::int64_t count);

/// Throws UserError unless the model has a token_space(). `option` is what asked for it, for the message.
void require_token_space(const Embedder& model, const std::string& option);

/// A vocabulary as the space in which people read embeddings of pictures (Chen et al. 2023, section 5). A model that has
/// a token_space() is read as it is; of any other, the activation of a token is the similarity of the picture with the
/// token's text. Special tokens are no entries.
class TokenSpace {
 public:
  /// `task`: its registered name, for messages. Texts are embedded once for all tasks of `context`. Throws UserError for
  /// a model that has a vocabulary of its own and is given another, and for one that has none and is given none.
  TokenSpace(const Embedder& model, const EvaluationContext& context, const VocabularySettings& settings,
             const std::string& task);

  std::int64_t size() const { return std::ssize(names_); }
  /// What people call an entry: as vocabulary_names() does, or the text that is compared.
  const std::string& name(std::int64_t entry) const { return names_[static_cast<std::size_t>(entry)]; }
  /// Entries of a text's tokens, in order; empty where the vocabulary has none of them.
  std::vector<std::int64_t> entries_of(const std::string& text) const;
  /// The token id of an entry.
  std::int64_t id(std::int64_t entry) const { return ids_[static_cast<std::size_t>(entry)]; }
  /// Weights or similarities, [B, size()] floating.
  at::Tensor activations(const TowerFeatures& images) const;

 private:
  void read_vocabulary(bool by_text);

  const Embedder& model_;
  std::shared_ptr<const Tokenizer> own_;  // of the settings; null: the model's
  const Tokenizer* tokenizer_;
  std::vector<std::string> names_;                // of the entries
  std::vector<std::int64_t> ids_;                 // of the entries
  std::map<std::int64_t, std::int64_t> entries_;  // by token id
  TowerFeatures texts_;                           // of the entries; undefined: embeddings are read as they are
};

}  // namespace tessera
