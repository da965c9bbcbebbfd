#include "src/evaluation/embedding_rows.h"

#include <algorithm>

#include <ATen/ATen.h>

#include "src/data/image/patches.h"
#include "src/evaluation/token_space.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/data/image/transforms.h>
#include <tessera/data/source.h>
#include <tessera/io/atomic_file.h>

namespace tessera {
namespace {

// Returns the preprocessed image. If it cannot be read, reports it to `bad` and returns an undefined tensor.
at::Tensor read_image(const std::string& path, const Preprocessing& preprocessing, const BadFile& bad) {
  try {
    return to_tensor(preprocess(decode_image(io::read_file(path), kDefaultMaxPixels, preprocessing), preprocessing));
  } catch (const SampleError& error) {
    if (!bad) user_error(path, ": ", error.what());
    bad(concat(path, ": ", error.what()));
  } catch (const UserError& error) {
    if (!bad) throw;
    bad(error.what());
  }
  return {};
}

std::vector<index::TokenWeight> active_tokens(const at::Tensor& row, std::int64_t top) {
  at::Tensor tokens = row.nonzero().squeeze(1).contiguous();
  if (top > 0 && tokens.size(0) > top) tokens = std::get<1>(row.topk(top));
  const at::Tensor weights = row.index_select(0, tokens);
  std::vector<index::TokenWeight> out;
  for (std::int64_t i = 0; i < tokens.size(0); ++i)
    out.push_back(
        {static_cast<std::int32_t>(tokens.const_data_ptr<std::int64_t>()[i]), weights.const_data_ptr<float>()[i]});
  return out;
}

// Splits `count` items into batches and calls use(first, end) for each.
void for_each_batch(std::size_t count, std::int64_t batch_size,
                    const std::function<void(std::size_t, std::size_t)>& use) {
  const auto at_once = static_cast<std::size_t>(batch_size);
  for (std::size_t first = 0; first < count; first += at_once) use(first, std::min(first + at_once, count));
}

}  // namespace

at::Tensor unit_embeddings(const at::Tensor& embeddings) { return embeddings / embeddings.norm(2, -1, true).clamp_min(1e-12); }

void embed_files(const Embedder& embedder, const std::vector<std::string>& paths, const EmbeddingWork& work,
                 const Rows& rows, const BadFile& bad) {
  for_each_batch(paths.size(), work.batch_size, [&](std::size_t first, std::size_t end) {
    std::vector<std::string> names;
    std::vector<at::Tensor> pixels;
    for (std::size_t i = first; i < end; ++i) {
      const at::Tensor image = read_image(paths[i], embedder.preprocessing(), bad);
      if (!image.defined()) continue;
      names.push_back(paths[i]);
      pixels.push_back(image);
    }
    if (!names.empty()) rows(names, embedder.encode_images(image_batch(pixels, embedder.preprocessing()), work.needs));
  });
}

void embed_texts(const Embedder& embedder, const std::vector<std::string>& texts, const EmbeddingWork& work,
                 const Rows& rows) {
  for_each_batch(texts.size(), work.batch_size, [&](std::size_t first, std::size_t end) {
    std::vector<std::string> names, some;
    for (std::size_t i = first; i < end; ++i) {
      names.push_back(std::to_string(i));
      some.push_back(texts[i]);
    }
    rows(names, embedder.encode_texts(some, work.needs));
  });
}

void append_rows(index::SparseVectors& vectors, const std::vector<std::string>& names, const TowerFeatures& features,
                 std::int64_t top) {
  const at::Tensor weights = features.global.to(at::kFloat);
  for (std::size_t i = 0; i < names.size(); ++i)
    index::append_row(vectors, names[i], active_tokens(weights[static_cast<std::int64_t>(i)], top), names[i]);
}

index::TokenNames token_names(const Embedder& embedder, const std::string& origin) {
  std::string lines;
  for (const std::string& name : vocabulary_names(*embedder.tokenizer(), embedder.token_space())) lines += name + "\n";
  return {lines, origin};
}

}  // namespace tessera
