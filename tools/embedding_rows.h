#pragma once

#include <functional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <tessera/evaluation/embedder.h>
#include <tessera/index/sparse_vectors.h>
#include <tessera/index/token_names.h>

/// What programs put through a model, and the embeddings that come out, as rows.
namespace tessera::tools {

/// Takes the embeddings of some pictures or texts, [B, D], and what each is called.
using Rows = std::function<void(const std::vector<std::string>& names, const at::Tensor& embeddings)>;

/// One text a line; the newline after the last one begins no further text.
std::vector<std::string> read_texts(const std::string& path);

/// Embeds picture files, so many at a time; they are called by their paths. Throws UserError naming a file that is no
/// picture.
void embed_files(const Embedder& embedder, const std::vector<std::string>& paths, std::int64_t batch_size,
                 const Rows& rows);

/// Embeds texts, so many at a time; they are called by their places, from 0.
void embed_texts(const Embedder& embedder, const std::vector<std::string>& texts, std::int64_t batch_size,
                 const Rows& rows);

/// Appends what is active in embeddings over a vocabulary, [B, V]; of more than `top` tokens in a row (0: no limit) the
/// greatest weights.
void append_rows(index::SparseVectors& vectors, const std::vector<std::string>& names, const at::Tensor& embeddings,
                 std::int64_t top = 0);

/// What the tokens of a model with a token_space() are called. `origin` is the model, for messages.
index::TokenNames token_names(const Embedder& embedder, const std::string& origin);

}  // namespace tessera::tools
