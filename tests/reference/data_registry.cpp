#include "tests/reference/all_runners.h"
#include "tests/reference/runner.h"

namespace tessera::probe {

Runners all_runners() {
  Runners runners = core_runners();
  add_caption_sampler_runner(runners);
  add_transform_runners(runners);
  return runners;
}

}  // namespace tessera::probe
