#if defined(__x86_64__)

#include "softmax_body.h"

namespace paceline::avx2 {

const SoftmaxKernels softmax = {maximum, find, collect, sum_exp, exps};

}  // namespace paceline::avx2

#endif
