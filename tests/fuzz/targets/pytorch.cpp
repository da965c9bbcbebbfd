// Reads inputs that are archives as PyTorch files, and any other input as a bare pickle. Bare pickles are needed because random changes of
// an archive rarely reach its pickle.
#include <ATen/core/Tensor.h>

#include "src/io/pickle.h"
#include "src/io/pytorch_file.h"
#include "tests/fuzz/target.h"
#include <tessera/base/error.h>

namespace tessera::fuzz {
namespace {

void check_places(const io::Pickle& pickle) {
  const std::size_t count = pickle.values.size();
  bool inside = pickle.root < count;
  for (const io::PickleValue& value : pickle.values) {
    inside = inside && value.maker < count && value.arguments < count && value.state < count;
    for (const std::uint32_t item : value.items) inside = inside && item < count;
  }
  require(inside, "pytorch: a value refers to one that does not exist");
}

}  // namespace

void fuzz_pytorch(std::string_view input) {
  static InputFile file;
  allowing<UserError>([&] {
    if (!input.starts_with("PK")) return check_places(io::parse_pickle(input, "input.pt"));
    file.write(input);
    for (const auto& [name, tensor] : io::load_pytorch_file(file.path()))
      require(tensor.numel() == 0 || tensor.storage().nbytes() <= input.size(),
              "pytorch: a storage longer than the file");
  });
}

}  // namespace tessera::fuzz
