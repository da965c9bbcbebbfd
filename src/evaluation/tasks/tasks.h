#pragma once

#include <memory>

#include "src/evaluation/tasks/captions_settings.h"
#include "src/evaluation/tasks/k_precision_settings.h"
#include "src/evaluation/tasks/option_settings.h"
#include "src/evaluation/tasks/image_task_settings.h"
#include "src/evaluation/tasks/task_settings.h"
#include <tessera/evaluation/task.h>

/// Factories of the tasks. registry.cpp registers them.
namespace tessera {

std::shared_ptr<EvaluationTask> make_zero_shot_task(const ZeroShotSettings& settings);
std::shared_ptr<EvaluationTask> make_retrieval_task(const RetrievalSettings& settings);
std::shared_ptr<EvaluationTask> make_segmentation_task(const SegmentationSettings& settings);
std::shared_ptr<EvaluationTask> make_linear_probe_task(const LinearProbeSettings& settings);
std::shared_ptr<EvaluationTask> make_segmentation_probe_task(const SegmentationProbeSettings& settings);
std::shared_ptr<EvaluationTask> make_depth_probe_task(const DepthProbeSettings& settings);
std::shared_ptr<EvaluationTask> make_knn_task(const KnnSettings& settings);
std::shared_ptr<EvaluationTask> make_hard_negatives_task(const HardNegativeSettings& settings);
std::shared_ptr<EvaluationTask> make_fgovd_task(const FgOvdSettings& settings);
std::shared_ptr<EvaluationTask> make_k_precision_task(const KPrecisionSettings& settings);
std::shared_ptr<EvaluationTask> make_options_task(const OptionTaskSettings& settings);
std::shared_ptr<EvaluationTask> make_slot_mask_task(const SlotMaskSettings& settings);
std::shared_ptr<EvaluationTask> make_slots_task(const SlotImageSettings& settings);
std::shared_ptr<EvaluationTask> make_interpretability_task(const InterpretabilitySettings& settings);
std::shared_ptr<EvaluationTask> make_tokens_task(const TokenImageSettings& settings);
std::shared_ptr<EvaluationTask> make_token_group_task(const TokenGroupSettings& settings);
std::shared_ptr<EvaluationTask> make_feature_map_task(const FeatureMapSettings& settings);
std::shared_ptr<EvaluationTask> make_grad_cam_task(const GradCamSettings& settings);
std::shared_ptr<EvaluationTask> make_words_task(const WordMapSettings& settings);
std::shared_ptr<EvaluationTask> make_query_task(const QuerySettings& settings);
std::shared_ptr<EvaluationTask> make_validation_loss_task(const ValidationLossSettings& settings);
std::shared_ptr<EvaluationTask> make_captions_task(const CaptionsSettings& settings);
std::shared_ptr<EvaluationTask> make_referring_task(const ReferringSettings& settings);

}  // namespace tessera
