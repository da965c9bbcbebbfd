// Reads and writes JSON lines in Seismic's format (Bruch et al. 2024). Each line is an object with id, content and vector.
#include <fstream>

#include <nlohmann/json.hpp>

#include "src/base/printable.h"
#include "src/index/formats.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/io/atomic_file.h>

namespace tessera::index {
namespace {

std::string id_of(const nlohmann::json& line, const std::string& place) {
  const auto id = line.find("id");
  if (id == line.end()) user_error(place, ": no \"id\"");
  if (id->is_string()) return id->get<std::string>();
  if (id->is_number_integer()) return id->dump();
  user_error(place, ": \"id\" is neither a text nor a whole number");
}

}  // namespace

void append_json_line(SparseVectors& vectors, const std::string& line, const TokenNames& names,
                      const std::string& place) {
  const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object())
    user_error(place, ": expected {\"id\": ..., \"vector\": {\"token\": weight}}, got ", printable(line, 60));
  const auto vector = json.find("vector");
  if (vector == json.end() || !vector->is_object()) user_error(place, ": no \"vector\" of {\"token\": weight}");
  std::vector<TokenWeight> row;
  for (const auto& [name, weight] : vector->items()) {
    if (!weight.is_number())
      user_error(place, ": the weight of ", printable(name, 60), " is ", printable(weight.dump(), 60),
                 ", expected a number");
    row.push_back({names.at(name, place), weight.get<float>()});
    // If tokens have no names, they are numbers, and the largest number determines the size of the vocabulary.
    if (names.are_numbers()) vectors.vocab_size = std::max(vectors.vocab_size, std::int64_t{row.back().token} + 1);
  }
  append_row(vectors, id_of(json, place), std::move(row), place);
}

SparseVectors read_json_lines(const std::string& path, const TokenNames& names) {
  std::ifstream in(path, std::ios::binary);
  if (!in) user_error(path, ": cannot read: ", std::strerror(errno));
  SparseVectors vectors;
  vectors.vocab_size = names.size();
  std::string line;
  for (std::int64_t number = 1; std::getline(in, line); ++number) {
    if (!strip(line).empty()) append_json_line(vectors, line, names, concat(path, ":", number));
  }
  if (in.bad()) user_error(path, ": cannot read: ", std::strerror(errno));
  return vectors;
}

void write_json_lines(const std::string& path, const SparseVectors& vectors, const TokenNames& names) {
  io::AtomicFile file(path);
  Buffered out(file);
  for (std::int64_t r = 0; r < vectors.rows(); ++r) {
    nlohmann::ordered_json vector = nlohmann::ordered_json::object();
    const auto tokens = vectors.tokens_of(r);
    const auto weights = vectors.weights_of(r);
    for (std::size_t i = 0; i < tokens.size(); ++i) vector[names.name(tokens[i])] = weights[i];
    const nlohmann::ordered_json line = {{"id", vectors.ids[r]}, {"content", ""}, {"vector", std::move(vector)}};
    out.write(line.dump() + "\n");
  }
  out.flush();
  file.commit();
}

}  // namespace tessera::index
