#pragma once

namespace torch {
class Library;
}

namespace tessera {

/// Registers torch.ops.tessera.* with LibTorch's dispatcher. Does nothing if these operators are already registered, by
/// a program that links Tessera or by a loaded libtessera_ops.so. Every C++ entry point of an operator calls this
/// function.
void register_operators();

// Each function defines the operators of one file, forward and backward, for all devices.
void define_sparsify_group(torch::Library& library);
void define_flops_regularizer(torch::Library& library);
void define_linear_cross_entropy(torch::Library& library);
void define_max_similarity(torch::Library& library);
void define_roi_align(torch::Library& library);
void define_text_conditioned_pool(torch::Library& library);
void define_token_contrast(torch::Library& library);
void define_token_max_projection(torch::Library& library);

}  // namespace tessera
