#pragma once

#include <string>
#include <vector>

#include <tessera/base/random.h>

namespace tessera::fuzz {

/// Small changes at random: bits, bytes, numbers of any width and order, pieces cut out, doubled, moved or taken from
/// another input, words of a dictionary. The same seed and index give the same input.
class Mutator {
 public:
  Mutator(std::vector<std::string> inputs, std::vector<std::string> words, std::size_t longest);

  std::string input(std::uint64_t seed, std::uint64_t index) const;

 private:
  void change(std::string& bytes, Random& random) const;
  void overwrite_number(std::string& bytes, Random& random) const;
  void move_piece(std::string& bytes, Random& random) const;
  void insert(std::string& bytes, const std::string& piece, Random& random) const;

  std::vector<std::string> inputs_;
  std::vector<std::string> words_;
  std::size_t longest_;
};

/// The words of a dictionary in libFuzzer's format: name="bytes with \xNN", a line each.
std::vector<std::string> read_dictionary(const std::string& path);

}  // namespace tessera::fuzz
