#include <algorithm>
#include <cstring>
#include <filesystem>
#include <sstream>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "src/index/sparse_files.h"
#include "tests/support/program.h"
#include "tests/support/temporary_folder.h"
#include <tessera/base/text.h>
#include <tessera/io/atomic_file.h>
#include <tessera/io/safetensors.h>
#include <tessera/models/model_file.h>

namespace tessera {
namespace {

/// A fixture with a tiny random model whose embeddings are weights of 13 vocabulary tokens.
class EmbedSparse : public FolderTest {
 protected:
  EmbedSparse() {
    save_model("readout: token_projection, projection: none");
    write("captions.txt", "a red circle\nblue squares\n");
  }
  void save_model(const std::string& head, const std::string& more = "") const {
    ModelFile file;
    file.tokenizer.name = "wordpiece";
    file.tokenizer.settings = config::parse_yaml("{context_length: 12}", "tokenizer.yaml");
    file.vocabulary = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nred\nblue\ncircle\n##s\nsquare\nof\nthe\n";
    file.model = config::read<ModelSettings>(config::parse_yaml(
        concat("image: {encoder: {name: vit, image_size: 32, patch_size: 8, width: 16, layers: 1, heads: 2}, ", head,
               "}\ntext: {encoder: {name: text_transformer, vocab_size: 13, context_length: 12, width: 32, layers: 1, heads: 2}, ",
               head, "}\npreprocessing: {image_size: 32", more, "}\n"),
        "model.yaml"));
    at::manual_seed(3);
    file.weights = DualEncoder(file.model).state_dict();
    save_model_file(path("model.safetensors"), file);
  }
  std::string command(const std::string& arguments) const {
    return "tessera-embed --checkpoint " + path("model.safetensors") + " --device cpu " + arguments;
  }
  std::string embed(const std::string& arguments) const { return output_of(command(arguments)); }

  static constexpr const char* kImages = "--source '{name: shapes, split: test, size: 7}' ";
  static constexpr const char* kImage = TESSERA_SOURCE_DIR "/tests/data/images/small_420.jpg";
};

TEST_F(EmbedSparse, RowsEqualTheDenseEmbeddings) {
  for (const auto& [rows, tensor] : {std::pair<std::string, const char*>(kImages, "image_embeddings"),
                                     {"--texts " + path("captions.txt"), "text_embeddings"}}) {
    embed(concat(rows, " --batch-size 2 --out ", path("dense.safetensors"), " --sparse ", path("sparse.safetensors")));
    const at::Tensor whole = io::load_safetensors(path("dense.safetensors")).tensors.at(tensor);
    const index::SparseVectors sparse = index::read_sparse_file(path("sparse.safetensors"), {});
    ASSERT_EQ(sparse.rows(), whole.size(0));
    at::Tensor restored = at::zeros_like(whole);
    for (std::int64_t i = 0; i < sparse.rows(); ++i)
      for (std::size_t k = 0; k < sparse.tokens_of(i).size(); ++k)
        restored[i][sparse.tokens_of(i)[k]] = sparse.weights_of(i)[k];
    EXPECT_LT((restored - whole).abs().max().item<double>(), 1e-6);
    EXPECT_NEAR(restored[0].norm().item<double>(), 1, 1e-6);
  }
}

TEST_F(EmbedSparse, AcceptsATableAsSourceAndErrorsNameTheOption) {
  write("a.csv", concat("filepath,title\n", kImage, ",a cat\n", kImage, ",a dog\n"));
  write("b.csv", concat("datei,text\n", kImage, ",eine Katze\n"));
  embed("--source " + path("a.csv") + " --out " + path("a.safetensors"));
  EXPECT_EQ(io::load_safetensors(path("a.safetensors")).tensors.at("image_embeddings").size(0), 2);
  const std::string refusal = refusal_of(command("--source " + path("b.csv") + " --out " + path("b.safetensors")));
  EXPECT_TRUE(refusal.starts_with("tessera-embed: --source " + path("b.csv") + ": has no column filepath and title")) << refusal;
  EXPECT_NE(refusal.find("image_keys: datei, caption_keys: text}"), std::string::npos) << refusal;
}

TEST_F(EmbedSparse, AnIndexOfImagesAnswersTextQueries) {
  embed(concat(kImages, "--sparse ", path("pictures.safetensors"), " --vocabulary ", path("words.txt"), " --out ",
               path("pictures.dense.safetensors")));
  embed(concat("--texts ", path("captions.txt"), " --sparse ", path("captions.jsonl"), " --out ",
               path("captions.dense.safetensors")));
  output_of(concat("tessera-index build --impact-bits 16 --vocabulary ", path("words.txt"), " ", path("pictures.index"), " ",
                   path("pictures.safetensors")));
  const at::Tensor cosines =
      io::load_safetensors(path("captions.dense.safetensors"))
          .tensors.at("text_embeddings")
          .matmul(io::load_safetensors(path("pictures.dense.safetensors")).tensors.at("image_embeddings").t());
  const auto keys =
      nlohmann::json::parse(io::load_safetensors(path("pictures.dense.safetensors")).metadata.at("images"));
  std::istringstream lines(output_of(
      concat("tessera-index search ", path("pictures.index"), " --k 3 --output tsv --queries ", path("captions.jsonl"))));
  std::string query, rank, key;
  double score = 0;
  std::int64_t count = 0;
  for (; lines >> query >> rank >> key >> score; ++count) {
    const auto image = std::find(keys.begin(), keys.end(), key) - keys.begin();
    const at::Tensor row = cosines[std::stoll(query)];
    EXPECT_NEAR(score, row[image].item<double>(), 0.01) << "a query's weights are rounded";
    EXPECT_GE(row[image].item<double>(), std::get<0>(row.sort(0, true))[std::stoll(rank) - 1].item<double>() - 0.01);
  }
  EXPECT_EQ(count, 6);
}

TEST_F(EmbedSparse, SearchEncodesItsQueriesAsEmbedDoes) {
  const std::string images = std::string(kImage) + " " TESSERA_SOURCE_DIR "/tests/data/images/large_420.jpg";
  const std::string texts = "--texts " + path("captions.txt");
  embed(concat(kImages, "--raw --sparse ", path("pictures.safetensors")));
  output_of(concat("tessera-index build ", path("pictures.index"), " ", path("pictures.safetensors")));
  const auto search = [&](const std::string& queries) {
    return output_of(concat("tessera-index search ", path("pictures.index"), " --k 3 --output tsv ", queries));
  };
  const auto search_embedded = [&](const std::string& rows) {
    embed(concat(rows, " --raw --sparse ", path("queries.safetensors")));
    return search("--queries " + path("queries.safetensors"));
  };
  const std::string model = "--model " + path("model.safetensors ");
  const std::string by_tower = search_embedded(texts), by_tokens = search_embedded(texts + " --text-encoder-free");
  EXPECT_EQ(std::count(by_tower.begin(), by_tower.end(), '\n'), 6) << by_tower;
  EXPECT_NE(by_tower, by_tokens);
  EXPECT_EQ(search(model + texts), by_tower);
  EXPECT_EQ(search(concat(model, "--texts - < ", path("captions.txt"))), by_tower) << "lines from standard input";
  EXPECT_EQ(search(concat(model, texts, " --text-encoder-free")), by_tokens);
  EXPECT_EQ(search(concat(model, "--images ", images)), search_embedded("--images " + images));
}

TEST_F(EmbedSparse, WithoutTheTextEncoderTextsAreTheirTokens) {
  embed(concat("--texts ", path("captions.txt"), " --text-encoder-free --raw --sparse ", path("free.jsonl")));
  const std::string lines = io::read_file(path("free.jsonl"));
  const auto first = nlohmann::json::parse(lines.substr(0, lines.find('\n')));
  EXPECT_EQ(first.at("id"), "0");
  EXPECT_EQ(first.at("vector"), nlohmann::json({{"a", 1.0}, {"circle", 1.0}, {"red", 1.0}}));
  EXPECT_EQ(nlohmann::json::parse(lines.substr(lines.find('\n'))).at("vector"),
            nlohmann::json({{"##s", 1.0}, {"blue", 1.0}, {"square", 1.0}}));
}

TEST_F(EmbedSparse, WritesTheLargestWeightsAsText) {
  embed(concat(kImages, "--raw --top 2 --sparse ", path("tokens.txt")));
  const std::string text = io::read_file(path("tokens.txt"));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 7) << text;
  EXPECT_EQ(std::count(text.begin(), text.end(), ':'), 14) << text;
}

TEST_F(EmbedSparse, WritesNpyWithKeysAndLeavesOutBadSamples) {
  write("broken.jpg", "<html>");
  write("rows.csv", concat("filepath,title\n", kImage, ",a\n", path("broken.jpg"), ",b\n", kImage, ",c\n"));
  const std::string text =
      embed(concat("--source '{name: csv, separator: comma, path: ", path("rows.csv"), "}' --out ", path("rows.npy")));
  EXPECT_NE(text.find("left out 1 samples (bad_image)"), std::string::npos) << text;
  EXPECT_NE(text.find("broken.jpg"), std::string::npos) << text;
  const std::string keys = io::read_file(path("rows.keys.txt"));
  EXPECT_EQ(std::count(keys.begin(), keys.end(), '\n'), 2) << keys;
  const std::string npy = io::read_file(path("rows.npy"));
  EXPECT_TRUE(npy.starts_with("\x93NUMPY"));
  EXPECT_NE(npy.find("'shape': (2, 13)"), std::string::npos) << npy.substr(0, 128);
}

TEST_F(EmbedSparse, ABrokenImageFileIsReportedAndLeftOut) {
  const std::string good = kImage;
  write("broken.jpg", "<html>");
  const std::string files = concat("--batch-size 1 --out ", path("rows.safetensors"), " --images ", path("broken.jpg"));
  const std::string text = embed(concat(files, " ", good, " ", path("missing.jpg"), " ", good));
  for (const std::string& part : {"left out: " + path("broken.jpg") + ": ", "left out: " + path("missing.jpg") + ": ",
                                  std::string("--images: left out 2 of 4 images")})
    EXPECT_NE(text.find(part), std::string::npos) << text;
  const io::TensorFile written = io::load_safetensors(path("rows.safetensors"));
  EXPECT_EQ(written.tensors.at("image_embeddings").size(0), 2);
  EXPECT_EQ(nlohmann::json::parse(written.metadata.at("images")), nlohmann::json({good, good}));

  std::filesystem::remove(path("rows.safetensors"));
  const std::string none = refusal_of(command(files));
  EXPECT_NE(none.find("--images: nothing to embed: left out 1 of 1 images"), std::string::npos) << none;
  EXPECT_FALSE(std::filesystem::exists(path("rows.safetensors")));
}

TEST_F(EmbedSparse, WritesPatchesAndTokensWithTheEmbeddings) {
  save_model("projection: {name: linear, embed_dim: 8}");
  const std::string both = concat(kImages, "--texts ", path("captions.txt"), " --dense --raw --batch-size 2 --out ");
  const std::string text = embed(both + path("rows.safetensors"));
  EXPECT_NE(text.find("image_patches [7, 16, 8]\n"), std::string::npos) << text;
  const auto tensors = io::load_safetensors(path("rows.safetensors")).tensors;
  const at::Tensor mask = tensors.at("text_mask"), tokens = tensors.at("text_tokens");
  ASSERT_EQ(mask.sizes(), (std::vector<std::int64_t>{2, 12}));
  EXPECT_TRUE(at::equal(mask.sum(1), at::tensor({5, 5}, at::kLong))) << "three words and two special tokens";
  EXPECT_EQ(tokens.masked_select(mask.logical_not().unsqueeze(-1)).abs().max().item<float>(), 0);
  // This model's read-out picks one token, so the text embedding equals a token's embedding.
  const at::Tensor apart = (tokens - tensors.at("text_embeddings").unsqueeze(1)).abs().amax(2);
  EXPECT_LT(apart.amin(1).max().item<double>(), 1e-6);

  embed(concat(kImages, "--dense --type float16 --out ", path("half.npy")));
  const std::string npy = io::read_file(path("half.patches.npy"));
  EXPECT_NE(npy.find("'descr': '<f2'"), std::string::npos) << npy.substr(0, 128);
  EXPECT_NE(npy.find("'shape': (7, 16, 8)"), std::string::npos) << npy.substr(0, 128);
  EXPECT_EQ(npy.size(), 128 + 7 * 16 * 8 * 2U);
  at::Tensor stored = at::empty({7, 16, 8}, at::kHalf);
  std::memcpy(stored.data_ptr(), npy.data() + 128, stored.nbytes());
  const at::Tensor patches = tensors.at("image_patches");
  EXPECT_LT((stored.to(at::kFloat) - patches / patches.norm(2, -1, true)).abs().max().item<double>(), 1e-3);
}

TEST_F(EmbedSparse, WritesTheGridsOfPatchesOfImagesThatKeepTheirShapes) {
  save_model("readout: gap, projection: {name: linear, embed_dim: 8}", ", resize_mode: naflex, max_patches: 18");
  const std::string dense = "--source '{name: shapes, split: test, size: 7, aspect: 3}' --dense --out ";
  embed(dense + path("rows.safetensors"));
  const auto tensors = io::load_safetensors(path("rows.safetensors")).tensors;
  EXPECT_EQ(tensors.at("image_patches").sizes(), (std::vector<std::int64_t>{7, 18, 8}));
  const at::Tensor grids = tensors.at("image_grids");
  ASSERT_EQ(grids.sizes(), (std::vector<std::int64_t>{7, 2}));
  EXPECT_LE(grids.prod(1).max().item<std::int64_t>(), 18);
  embed(dense + path("rows.npy"));
  const std::string npy = io::read_file(path("rows.grids.npy"));
  EXPECT_NE(npy.find("'descr': '<i8'"), std::string::npos) << npy.substr(0, 128);
  EXPECT_EQ(npy.substr(128), std::string(static_cast<const char*>(grids.const_data_ptr()), grids.nbytes()));
}

TEST_F(EmbedSparse, MistakesAreReportedInOneLine) {
  const auto error = [&](const std::string& arguments) { return refusal_of(command(arguments)); };
  EXPECT_EQ(error(kImages),
            "tessera-embed: nowhere to write to: give --out FILE, or --sparse FILE for embeddings over a vocabulary\n");
  EXPECT_EQ(error(concat(kImages, "--out ", path("x.txt"))),
            concat("tessera-embed: --out ", path("x.txt"),
                   ": the ending decides the format: name a file that ends in .safetensors or .npy\n"));
  EXPECT_EQ(error(concat(kImages, "--sparse x.csr --texts ", path("captions.txt"))),
            "tessera-embed: --sparse: a file holds either images or texts: run the program once for each\n");
  save_model("projection: {name: linear, embed_dim: 8}");
  EXPECT_EQ(
      error(concat(kImages, "--sparse ", path("x.csr"))),
      "tessera-embed: --sparse: this model's embeddings are not weights of vocabulary tokens: take one whose towers "
      "both read out by token_projection, with projection: none, as in configs/shapes/stair.yaml\n");
}

}  // namespace
}  // namespace tessera
