// Without arguments (as in the test `consumer`), computes a loss on random features. With the arguments RUN IMAGE TEXT..., runs the
// README's example.
#include <iostream>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include <tessera/tessera.h>

namespace {

void compare(const std::string& run, const std::string& image_file, const std::vector<std::string>& captions) {
  const tessera::InferenceModel run_model = tessera::load_for_inference(run);
  const tessera::Image decoded = tessera::decode_image(tessera::io::read_file(image_file));
  const at::Tensor pixels = tessera::to_tensor(tessera::preprocess(decoded, run_model.file.model.preprocessing));
  const at::Tensor image = run_model.model->encode_image(pixels.unsqueeze(0)).global;
  const at::Tensor texts = run_model.model->encode_text(run_model.tokenizer->encode_batch(captions)).global;
  std::cout << at::cosine_similarity(image, texts) << "\n";
}

void loss_of_random_features() {
  const auto objective = tessera::objectives().make({"sparc"}, "objective", {});
  tessera::Features features;
  features.images["image"] = {.global = at::randn({4, 8}), .tokens = at::randn({4, 9, 8})};
  features.texts["caption"] = {.global = at::randn({4, 8}), .tokens = at::randn({4, 5, 8}), .mask = at::ones({4, 5}, at::kBool)};
  const tessera::Losses losses = objective->forward(features, {});
  std::cout << "objectives: " << tessera::objectives().names().size() << ", loss of random features "
            << losses.total.item<double>() << "\n";
}

}  // namespace

int main(int count, char** arguments) {
  return tessera::run_program("consumer", [&] {
    if (count > 3) compare(arguments[1], arguments[2], {arguments + 3, arguments + count});
    else loss_of_random_features();
    return 0;
  });
}
