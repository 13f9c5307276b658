#include "softmax_body.h"

namespace paceline::portable {

const SoftmaxKernels softmax = {maximum, find, collect, sum_exp, exps};

}  // namespace paceline::portable
