#include <cmath>

#include <ATen/ATen.h>

#include "src/index/sparse_files.h"
#include "tests/index/brute_force.h"
#include "tests/index/temporary_index.h"
#include <tessera/io/atomic_file.h>
#include <tessera/io/safetensors.h>

namespace tessera::index {
namespace {

using namespace std::string_literals;

class Formats : public IndexTest {
 protected:
  std::string error_in(const std::string& file, const SparseFileOptions& options = {}) const {
    const std::string message = error_of([&] { read_sparse_file(file, options); });
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    return message.starts_with(folder_) ? message.substr(folder_.size() + 1) : message;
  }
};

/// Returns two rows with a vocabulary of four tokens.
SparseVectors two_rows() {
  SparseVectors vectors{4};
  append_row(vectors, "cat", {{3, 0.5F}, {0, 1.25F}}, "test");
  append_row(vectors, "dog \"x\" ä", {{2, 2.0F}}, "test");
  return vectors;
}

TokenNames four_names() {
  return {"red\nblue\nround\n[MASK]\n", "test"};
}

void expect_same(const SparseVectors& a, const SparseVectors& b) {
  EXPECT_EQ(a.vocab_size, b.vocab_size);
  EXPECT_EQ(a.indptr, b.indptr);
  EXPECT_EQ(a.tokens, b.tokens);
  EXPECT_EQ(a.weights, b.weights);
  EXPECT_EQ(a.ids, b.ids);
}

template <class T>
std::string bytes_of(std::initializer_list<T> values) {
  return {reinterpret_cast<const char*>(values.begin()), values.size() * sizeof(T)};
}

TEST_F(Formats, DenseEmbeddingsAreRecognizedInTheError) {
  const std::string missing = "a.safetensors: has no tensor shape; expected indptr, indices, values and shape of sparse "
                              "vectors";
  io::save_safetensors(path("a.safetensors"), {{"image_embeddings", at::ones({2, 3})}});
  EXPECT_EQ(error_in(path("a.safetensors")), missing + "; it looks like dense embeddings of tessera-embed --out: use its "
                                                       "--sparse to write vectors for an index");
  io::save_safetensors(path("a.safetensors"), {{"other", at::ones({2, 3})}});
  EXPECT_EQ(error_in(path("a.safetensors")), missing);
}

TEST_F(Formats, ExactFormatsKeepRowsWeightsAndIds) {
  for (const std::string name : {"a.safetensors", "a.csr", "a.jsonl"}) {
    SCOPED_TRACE(name);
    for (const SparseFileOptions& options : {SparseFileOptions{.names = four_names()}, SparseFileOptions{}}) {
      write_sparse_file(path(name), two_rows(), options);
      expect_same(read_sparse_file(path(name), options), two_rows());
    }
    SparseVectors many = random_vectors({.rows = 300, .vocab_size = 90, .most_tokens = 40}, 1);
    write_sparse_file(path(name), many, {});
    SparseVectors read = read_sparse_file(path(name), {});
    many.vocab_size = read.vocab_size;  // jsonl does not store the vocabulary's size; the largest token number determines it
    expect_same(read, many);
    write_sparse_file(path(name), SparseVectors{4}, {});
    EXPECT_EQ(read_sparse_file(path(name), {}).rows(), 0);
  }
}

TEST_F(Formats, CiffKeepsRowsAndIdsAndRoundsWeights) {
  const SparseFileOptions options{.names = four_names(), .ciff_scale = 4};
  write_sparse_file(path("a.ciff"), two_rows(), options);
  expect_same(read_sparse_file(path("a.ciff"), options), two_rows());  // at scale 4 the weights stay exact: they are 5, 2 and 8 quarters
  const SparseVectors many = random_vectors({.rows = 300, .vocab_size = 90, .most_tokens = 40}, 1);
  write_sparse_file(path("b.ciff"), many, {});
  const SparseVectors read = read_sparse_file(path("b.ciff"), {});
  EXPECT_EQ(read.indptr, many.indptr);
  EXPECT_EQ(read.tokens, many.tokens);
  EXPECT_EQ(read.ids, many.ids);
  for (std::size_t i = 0; i < many.weights.size(); ++i) EXPECT_NEAR(read.weights[i], many.weights[i], 0.0051);
}

TEST_F(Formats, EqualLinesOfAVocabularyAreDifferentTokens) {
  const SparseFileOptions options{.names = TokenNames("red\nblue\nred\n", "test"), .ciff_scale = 1};
  SparseVectors vectors{3};
  append_row(vectors, "cat", {{0, 1}, {1, 2}, {2, 3}}, "test");
  for (const std::string name : {"a.jsonl", "a.ciff"}) {
    write_sparse_file(path(name), vectors, options);
    expect_same(read_sparse_file(path(name), options), vectors);
  }
  EXPECT_TRUE(io::read_file(path("a.jsonl")).ends_with("{\"red\":1.0,\"blue\":2.0,\"[2]\":3.0}}\n"));
}

TEST_F(Formats, CsrMatchesBigAnnsByteLayout) {
  const std::string expected = bytes_of<std::int64_t>({2, 4, 3, 0, 2, 3}) + bytes_of<std::int32_t>({0, 3, 2}) +
                               bytes_of<float>({1.25F, 0.5F, 2.0F});
  write_sparse_file(path("a.csr"), two_rows(), {});
  EXPECT_EQ(io::read_file(path("a.csr")), expected);
  EXPECT_EQ(io::read_file(path("a.csr.ids")), "cat\ndog \"x\" ä\n");
  const SparseVectors without_ids = read_sparse_file(write("b.csr", expected), {});
  EXPECT_EQ(without_ids.ids, (std::vector<std::string>{"0", "1"}));
  EXPECT_EQ(without_ids.weights, two_rows().weights);
}

TEST_F(Formats, UnsortedCsrRowsAreSortedAndZerosAreDropped) {
  const std::string bytes =
      bytes_of<std::int64_t>({1, 4, 3, 0, 3}) + bytes_of<std::int32_t>({3, 1, 0}) + bytes_of<float>({3, 0, 1});
  const SparseVectors read = read_sparse_file(write("a.csr", bytes), {});
  EXPECT_EQ(read.tokens, (std::vector<std::int32_t>{0, 3}));
  EXPECT_EQ(read.weights, (std::vector<float>{1, 3}));
}

TEST_F(Formats, JsonLinesMatchTheFormatOfSeismic) {
  write_sparse_file(path("a.jsonl"), two_rows(), {.names = four_names()});
  EXPECT_EQ(io::read_file(path("a.jsonl")),
            "{\"id\":\"cat\",\"content\":\"\",\"vector\":{\"red\":1.25,\"[MASK]\":0.5}}\n"
            "{\"id\":\"dog \\\"x\\\" ä\",\"content\":\"\",\"vector\":{\"round\":2.0}}\n");
  const SparseVectors read =
      read_sparse_file(write("b.jsonl", "{\"vector\": {\"7\": 1, \"2\": 0.5}, \"id\": 12, \"more\": [1]}\r\n\n"), {});
  EXPECT_EQ(read.ids, (std::vector<std::string>{"12"}));
  EXPECT_EQ(read.tokens, (std::vector<std::int32_t>{2, 7}));
  EXPECT_EQ(read.vocab_size, 8);
}

// Each message is preceded by its length. The messages are Header{version 1, 2 lists, 2 documents, ...}, two PostingsList{term, df, cf,
// postings of (gap, frequency)}, and two DocRecord.
TEST_F(Formats, CiffMatchesTheProtocolBuffersEncoding) {
  // The first posting is of document 0, a value that proto3 omits. The second posting has a gap of 1.
  const std::string list =
      "\x0A\x04"
      "blue"
      "\x10\x02\x18\x07\x22\x02\x10\x05\x22\x04\x08\x01\x10\x02"s;
  const std::string list2 =
      "\x0A\x03"
      "red"
      "\x10\x01\x18\x81\x02\x22\x05\x08\x01\x10\x81\x02"s;
  const std::string header = "\x08\x01\x10\x02\x18\x02\x20\x02\x28\x02\x30\x07\x42\x00"s;
  const std::string first =
                        "\x12\x03"
                        "cat"
                        "\x18\x05"s,
                    second =
                        "\x08\x01\x12\x03"
                        "dog"
                        "\x18\x83\x02"s;
  std::string bytes;
  for (const std::string& message : {header, list, list2, first, second})
    bytes += static_cast<char>(message.size()) + message;
  const SparseVectors read = read_sparse_file(write("a.ciff", bytes), {.names = four_names(), .ciff_scale = 1});
  EXPECT_EQ(read.ids, (std::vector<std::string>{"cat", "dog"}));
  EXPECT_EQ(read.indptr, (std::vector<std::int64_t>{0, 1, 3}));
  EXPECT_EQ(read.tokens, (std::vector<std::int32_t>{1, 0, 1}));
  EXPECT_EQ(read.weights, (std::vector<float>{5, 257, 2}));
  write_sparse_file(path("b.ciff"), read, {.names = four_names(), .ciff_scale = 1});
  const std::string written = io::read_file(path("b.ciff"));
  for (const std::string& message : {list, list2, first, second})
    EXPECT_NE(written.find(static_cast<char>(message.size()) + message), std::string::npos);
  for (std::size_t size = 0; size < bytes.size(); ++size)
    EXPECT_NE(error_in(write("cut.ciff", bytes.substr(0, size)), {.names = four_names()}), "no error") << size;
}

TEST_F(Formats, TextIsWrittenButNotReadBack) {
  write_sparse_file(path("a.txt"), two_rows(), {.names = four_names()});
  EXPECT_EQ(io::read_file(path("a.txt")), "cat\tred:1.25 [MASK]:0.5\ndog \"x\" ä\tround:2\n");
  EXPECT_EQ(error_in(path("a.txt")), "a.txt: the format text is write-only");
}

TEST_F(Formats, ErrorsNameFileAndRow) {
  EXPECT_EQ(error_in(write("a.npz", "")),
            "a.npz: its extension does not belong to a format of sparse vectors; name a format: safetensors, csr, jsonl, ciff and text");
  EXPECT_EQ(error_in(write("a.csr", "short")), "a.csr: not a csr file: only 5 bytes long");
  EXPECT_EQ(
      error_in(write("a.csr", bytes_of<std::int64_t>({1, 4, 2, 0, 2}))),
      "a.csr: not a csr file, or truncated: it announces 1 rows, 4 columns and 2 weights, and has 16 bytes for them");
  const auto csr = [&](std::int32_t token, float weight) {
    return write("a.csr", bytes_of<std::int64_t>({1, 4, 2, 0, 2}) + bytes_of<std::int32_t>({1, token}) +
                              bytes_of<float>({1, weight}));
  };
  EXPECT_EQ(error_in(csr(4, 1)), "a.csr: row 0: token 4 is outside the vocabulary of 4");
  EXPECT_EQ(error_in(csr(1, 1)), "a.csr: row 0: token 1 is listed twice");
  EXPECT_EQ(error_in(csr(2, -1)), "a.csr: row 0: token 2 has the weight -1, expected a number of at least 0");
  EXPECT_EQ(error_in(csr(2, std::nanf(""))),
            "a.csr: row 0: token 2 has the weight nan, expected a number of at least 0");
  write("a.csr.ids", "one\ntwo\n");
  EXPECT_EQ(error_in(csr(2, 1)), "a.csr.ids: 2 ids for 1 rows; expected one per line");
  EXPECT_EQ(error_in(write("b.csr", bytes_of<std::int64_t>({2, 4, 0, 0, 1, 0}))),
            "b.csr: the starts of its rows do not rise from 0 to the number of weights, 0");

  EXPECT_EQ(error_in(write("a.jsonl", "{\"id\": 1, \"vector\": {}}\n[1]\n")),
            "a.jsonl:2: expected {\"id\": ..., \"vector\": {\"token\": weight}}, got [1]");
  EXPECT_EQ(error_in(write("a.jsonl", "{\"id\": 1}")), "a.jsonl:1: no \"vector\" of {\"token\": weight}");
  EXPECT_EQ(error_in(write("a.jsonl", "{\"vector\": {}}")), "a.jsonl:1: no \"id\"");
  EXPECT_EQ(error_in(write("a.jsonl", "{\"id\": \"\", \"vector\": {}}")), "a.jsonl:1: its id is empty");
  EXPECT_EQ(error_in(write("a.jsonl", "{\"id\": \"a\\n\", \"vector\": {}}")),
            "a.jsonl:1: the id \"a\\n\" has control characters, or bytes that are not UTF-8");
  EXPECT_EQ(error_in(write("a.jsonl", "{\"id\": 1, \"vector\": {\"reed\": 1}}"), {.names = four_names()}),
            "a.jsonl:1: there is no token reed: did you mean red?");
  EXPECT_EQ(error_in(write("a.jsonl", "{\"id\": 1, \"vector\": {\"red\": 1}}")),
            "a.jsonl:1: expected the number of a token, got red (names need --vocabulary)");
  EXPECT_EQ(error_in(write("a.jsonl", "{\"id\": 1, \"vector\": {\"3\": \"x\"}}")),
            "a.jsonl:1: the weight of 3 is \"x\", expected a number");
  EXPECT_EQ(error_in(write("a.ciff", "")), "a.ciff: the file is empty, expected a ciff file");
  EXPECT_EQ(error_in(write("a.ciff", "\x02\x08\x02"s)), "a.ciff: expected a ciff file of version 1, got version 2");
  EXPECT_EQ(error_in(path("none.csr")), "none.csr: cannot read: No such file or directory");
  EXPECT_EQ(error_in(path("none.jsonl")), "none.jsonl: cannot read: No such file or directory");

  SparseVectors large = two_rows();
  large.vocab_size = 5;
  write_sparse_file(path("a.safetensors"), large, {});
  EXPECT_EQ(error_in(path("a.safetensors"), {.names = four_names()}),
            "a.safetensors: its vocabulary of 5 is larger than the 4 tokens that have names");
}

TEST(TokenNamesTest, NumbersAndNamesMapBothWays) {
  const TokenNames numbers, names = four_names();
  EXPECT_EQ(numbers.find("17"), 17);
  for (const char* text : {"", "-1", "1x", "99999999999"}) EXPECT_EQ(numbers.find(text), std::nullopt) << text;
  EXPECT_EQ(numbers.name(17), "17");
  EXPECT_EQ(names.find("round"), 2);
  EXPECT_EQ(names.find("2"), std::nullopt);
  EXPECT_EQ(names.name(9), "[9]");
  EXPECT_EQ(names.find("[9]"), 9);
  EXPECT_EQ(names.find("[2]"), std::nullopt);
  EXPECT_EQ(names.find("[MASK]"), 3);
  EXPECT_EQ(TokenNames("a\r\nb", "test").name(0), "a");
  EXPECT_EQ(error_of([] { TokenNames("", "v.txt"); }), "v.txt: the vocabulary is empty; expected one token per line");
  EXPECT_EQ(error_of([] { TokenNames("a\n\xff\n", "v.txt"); }).substr(0, 17), "v.txt:2: not UTF-");
}

}  // namespace
}  // namespace tessera::index
