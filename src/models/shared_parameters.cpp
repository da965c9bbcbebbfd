#include <ATen/ATen.h>

#include <tessera/models/shared_parameters.h>

namespace tessera {

at::Tensor SharedParameters::get(const std::string& name, at::IntArrayRef sizes, torch::nn::Module& owner,
                                 const std::string& registered, const std::function<at::Tensor()>& make) {
  const auto found = named_.find(name);
  if (found == named_.end()) return named_[name] = owner.register_parameter(registered, make());
  TORCH_CHECK(found->second.sizes() == sizes, "two modules share ", name, ", but one makes it ", found->second.sizes(),
              " and the other wants ", sizes);
  return found->second;
}

}  // namespace tessera
