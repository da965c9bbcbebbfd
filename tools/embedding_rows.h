#pragma once

#include <functional>
#include <string>
#include <vector>

#include <tessera/evaluation/embedder.h>
#include <tessera/index/sparse_vectors.h>
#include <tessera/index/token_names.h>

/// Embeds files and texts with a model and passes on the embeddings as rows.
namespace tessera::tools {

/// Takes the features of some images or texts, and their names.
using Rows = std::function<void(const std::vector<std::string>& names, const TowerFeatures& features)>;

/// Takes the message about an image file that is skipped, which begins with its path.
using BadFile = std::function<void(const std::string& message)>;

/// The batch size, and which features to compute.
struct EmbeddingWork {
  std::int64_t batch_size = 64;
  ViewNeeds needs;
};

/// Reads one text per line; a newline at the end of the file does not add an empty text.
std::vector<std::string> read_texts(const std::string& path);

/// Embeds image files, named by their paths. Reports files that cannot be read or decoded to `bad` and skips them; throws
/// UserError if there is no `bad`.
void embed_files(const Embedder& embedder, const std::vector<std::string>& paths, const EmbeddingWork& work,
                 const Rows& rows, const BadFile& bad = {});

/// Embeds texts, named by their positions, from 0.
void embed_texts(const Embedder& embedder, const std::vector<std::string>& texts, const EmbeddingWork& work,
                 const Rows& rows);

/// Appends the active tokens of global embeddings over a vocabulary, [B, V]. If a row has more than `top` active tokens
/// (0: no limit), only the largest weights are kept.
void append_rows(index::SparseVectors& vectors, const std::vector<std::string>& names, const TowerFeatures& features,
                 std::int64_t top = 0);

/// Returns the names of the tokens of a model with a token_space(). `origin` names the model in messages.
index::TokenNames token_names(const Embedder& embedder, const std::string& origin);

}  // namespace tessera::tools
