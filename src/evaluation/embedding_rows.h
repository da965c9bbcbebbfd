#pragma once

#include <functional>
#include <string>
#include <vector>

#include "src/index/sparse_vectors.h"
#include "src/index/token_names.h"
#include <tessera/evaluation/embedder.h>

/// Functions that embed image files and texts with a model and pass the embeddings on as rows.
namespace tessera {

/// Divides each embedding [..., D] by its length, in its own type; a length below 1e-12 counts as 1e-12. The embeddings that tessera-embed
/// writes and tessera-serve returns are made by this function.
at::Tensor unit_embeddings(const at::Tensor& embeddings);

/// A function that receives the features of some images or texts, and their names.
using Rows = std::function<void(const std::vector<std::string>& names, const TowerFeatures& features)>;

/// A function that receives the message about an image file that is skipped. The message begins with the path.
using BadFile = std::function<void(const std::string& message)>;

/// The batch size, and which features to compute.
struct EmbeddingWork {
  std::int64_t batch_size = 64;
  ViewNeeds needs;
};

/// Embeds image files. The names that `rows` receives are the files' paths. Skips files that cannot be read or decoded and reports them to
/// `bad`; without `bad`, throws UserError for such a file.
void embed_files(const Embedder& embedder, const std::vector<std::string>& paths, const EmbeddingWork& work,
                 const Rows& rows, const BadFile& bad = {});

/// Embeds texts. The names that `rows` receives are the texts' positions in `texts`, counted from 0.
void embed_texts(const Embedder& embedder, const std::vector<std::string>& texts, const EmbeddingWork& work,
                 const Rows& rows);

/// Appends each row's active tokens and their weights to `vectors`. `features.global` [B, V] contains a weight for each token of a
/// vocabulary. If a row has more than `top` active tokens (0: no limit), only the largest weights are kept.
void append_rows(index::SparseVectors& vectors, const std::vector<std::string>& names, const TowerFeatures& features,
                 std::int64_t top = 0);

/// Returns the names of the tokens of a model with a token_space(). `origin` names the model in messages.
index::TokenNames token_names(const Embedder& embedder, const std::string& origin);

}  // namespace tessera
