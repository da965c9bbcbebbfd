#pragma once

#include <string>
#include <vector>

#include <tessera/base/random.h>

namespace tessera::fuzz {

/// Makes small random changes: flips bits, replaces bytes, writes numbers of any width and byte order, removes, repeats or moves
/// pieces, and inserts pieces of other inputs or words of a dictionary. The same seed and index always produce the same input.
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

/// Reads a dictionary in libFuzzer's format, which has one word per line: name="bytes with \xNN".
std::vector<std::string> read_dictionary(const std::string& path);

}  // namespace tessera::fuzz
