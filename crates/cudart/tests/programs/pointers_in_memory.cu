#include "common.h"
struct Node { int value; Node* next; };
__global__ void walk(const Node* head, int* sum) { for (; head; head = head->next) *sum += head->value; }
int main() {
  std::vector<Node*> nodes(5);
  for (auto& n : nodes) OK(cudaMalloc(&n, sizeof(Node)));
  for (int i = 0; i < 5; i++) {
    Node n = {i + 1, i < 4 ? nodes[i + 1] : nullptr};
    OK(cudaMemcpy(nodes[i], &n, sizeof n, cudaMemcpyHostToDevice));
  }
  int* sum;
  OK(cudaMalloc(&sum, 4));
  OK(cudaMemset(sum, 0, 4));
  walk<<<1, 1>>>(nodes[0], sum);
  RIGHT(host(sum, 1)[0] == 15);
}
