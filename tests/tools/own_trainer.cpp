// An example of a user's program that trains with its own objective.
#include <ATen/ATen.h>

#include <tessera/objectives/objective.h>
#include <tessera/training/trainer_main.h>

namespace {

struct DistanceSettings {
  double power = 2;
};
template <class Visitor>
void fields(Visitor& v, DistanceSettings& s) {
  v("power", s.power, "of the distance between image and text", tessera::config::at_least(1));
}

class Distance : public tessera::Objective {
 public:
  explicit Distance(double power) : power_(power) {}
  tessera::Losses forward(const tessera::Features& features, const tessera::StepContext&) override {
    const at::Tensor difference = features.image().global - features.text().global;
    return {at::pow(difference.norm(2, 1), power_).mean(), {}};
  }
  tessera::Needs needs() const override { return {}; }

 private:
  double power_;
};

}  // namespace

int main(int argc, char** argv) {
  tessera::objectives().add<DistanceSettings>(
      "my_distance", "distance between image and text",
      [](const DistanceSettings& s, const tessera::ObjectiveContext&) { return std::make_shared<Distance>(s.power); });
  return tessera::trainer_main(argc, argv);
}
