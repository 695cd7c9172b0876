// Fixed-point integers: multiply and add, nothing else. The result is the exact integer; the
// position of its point is a constant that no gate has to know.

module dot_fixed #(
    parameter LANES = 32,
    parameter WIDTH = 8
) (
    input [LANES*WIDTH-1:0] a,
    input [LANES*WIDTH-1:0] b,
    output signed [2*WIDTH+$clog2(LANES)-1:0] result
);
  wire [LANES*2*WIDTH-1:0] products;

  genvar i;
  generate
    for (i = 0; i < LANES; i = i + 1) begin : lane
      multiply_signed #(.A(WIDTH), .B(WIDTH)) multiply (
          .a(a[i*WIDTH+:WIDTH]),
          .b(b[i*WIDTH+:WIDTH]),
          .product(products[i*2*WIDTH+:2*WIDTH])
      );
    end
  endgenerate

  adder_tree #(.TERMS(LANES), .WIDTH(2 * WIDTH)) tree (
      .terms(products),
      .sum(result)
  );
endmodule
