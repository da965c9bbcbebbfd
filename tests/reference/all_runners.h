#pragma once

#include "tests/reference/runner.h"

// Each function adds the runners of one file. registry.cpp calls all of these functions except those for modules in tessera_data, which
// data_registry.cpp calls.
namespace tessera::probe {

void add_caption_runners(Runners& runners);
void add_caption_sampler_runner(Runners& runners);
void add_flair_runners(Runners& runners);
void add_metric_runners(Runners& runners);
void add_model_runners(Runners& runners);
void add_objective_runners(Runners& runners);
void add_pyramidclip_runners(Runners& runners);
void add_superclip_runners(Runners& runners);
void add_text_group_runners(Runners& runners);
void add_training_runners(Runners& runners);
void add_transform_runners(Runners& runners);

}  // namespace tessera::probe
