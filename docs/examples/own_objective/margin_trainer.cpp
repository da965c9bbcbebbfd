#include <tessera/distributed/collectives.h>
#include <tessera/objectives/objective.h>
#include <tessera/ops/numeric.h>
#include <tessera/training/trainer_main.h>
using namespace tessera;

struct Settings {
  double margin = 0.2;
};
void fields(auto& v, Settings& s) {
  v("margin", s.margin, "how much a pair's cosine must exceed all others", config::at_least(0));
}

/// Compares each pair with the hardest negative of the batch, in both directions (VSE++, Faghri et al. 2018, eq. 6).
struct Margin : Objective {
  explicit Margin(double margin) : margin_(margin) {}
  Needs needs() const override { return {.images = {{"image", {}}}, .texts = {{"caption", {}}}}; }
  Losses forward(const Features& features, const StepContext& context) override {
    const NoAutocast no_autocast;  // float32 for every training.precision
    const at::Tensor image = unit_rows(to_compute(features.image().global)),  // [B, D]
        text = unit_rows(to_compute(features.text().global));
    const auto hinge = [&](const at::Tensor& rows, const at::Tensor& columns) {
      const at::Tensor cosines = at::matmul(rows, gather_rows(columns, context.group).t());       // [B, B of all ranks]
      const at::Tensor own = cosines.diagonal(context.group.rank() * rows.size(0)).unsqueeze(1);  // [B, 1]
      return (margin_ - own + cosines.masked_fill(cosines == own, -1).amax(1, true)).relu().mean();
    };
    return {hinge(image, text) + hinge(text, image), {}};
  }
  double margin_;
};

int main(int argc, char** argv) {
  objectives().add<Settings>("margin", "hinge loss", [](auto& s, auto&) { return std::make_shared<Margin>(s.margin); });
  return trainer_main(argc, argv);
}
