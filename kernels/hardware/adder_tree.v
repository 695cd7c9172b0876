// The exact sum of TERMS signed integers: a balanced tree, one bit wider at each level.
// The tree is a module that contains two smaller ones, so equal subtrees are synthesised once.

module adder_tree #(
    parameter TERMS = 32,
    parameter WIDTH = 16
) (
    input [TERMS*WIDTH-1:0] terms,
    output signed [WIDTH+$clog2(TERMS)-1:0] sum
);
  localparam LEFT = TERMS / 2;
  localparam RIGHT = TERMS - LEFT;

  generate
    if (TERMS == 1) begin : leaf
      assign sum = terms;
    end else begin : node
      wire signed [WIDTH+$clog2(LEFT)-1:0] left;
      wire signed [WIDTH+$clog2(RIGHT)-1:0] right;
      adder_tree #(.TERMS(LEFT), .WIDTH(WIDTH)) left_half (
          .terms(terms[LEFT*WIDTH-1:0]),
          .sum(left)
      );
      adder_tree #(.TERMS(RIGHT), .WIDTH(WIDTH)) right_half (
          .terms(terms[TERMS*WIDTH-1:LEFT*WIDTH]),
          .sum(right)
      );
      assign sum = left + right;
    end
  endgenerate
endmodule
