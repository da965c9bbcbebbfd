#pragma once

#include <functional>
#include <string>
#include <vector>

#include <tessera/evaluation/embedder.h>
#include <tessera/index/sparse_vectors.h>
#include <tessera/index/token_names.h>

/// What programs put through a model, and the embeddings that come out, as rows.
namespace tessera::tools {

/// Takes the features of some pictures or texts, and what each is called.
using Rows = std::function<void(const std::vector<std::string>& names, const TowerFeatures& features)>;

/// Takes the message of a picture file that is left out, which begins with its path.
using BadFile = std::function<void(const std::string& message)>;

/// How much of the pictures or texts is computed, and at a time.
struct EmbeddingWork {
  std::int64_t batch_size = 64;
  ViewNeeds needs;
};

/// One text a line; the newline after the last one begins no further text.
std::vector<std::string> read_texts(const std::string& path);

/// Embeds picture files; they are called by their paths. One that cannot be read or is no picture goes to `bad` and is
/// left out; without `bad` it is a UserError.
void embed_files(const Embedder& embedder, const std::vector<std::string>& paths, const EmbeddingWork& work,
                 const Rows& rows, const BadFile& bad = {});

/// Embeds texts; they are called by their places, from 0.
void embed_texts(const Embedder& embedder, const std::vector<std::string>& texts, const EmbeddingWork& work,
                 const Rows& rows);

/// Appends what is active in global embeddings over a vocabulary, [B, V]; of more than `top` tokens in a row (0: no
/// limit) the greatest weights.
void append_rows(index::SparseVectors& vectors, const std::vector<std::string>& names, const TowerFeatures& features,
                 std::int64_t top = 0);

/// What the tokens of a model with a token_space() are called. `origin` is the model, for messages.
index::TokenNames token_names(const Embedder& embedder, const std::string& origin);

}  // namespace tessera::tools
