// The full adder as a cell of its own, and where synthesis may place it: in the trees that multiply
// and add many numbers. A bit with a constant input is left to smaller gates.

(* blackbox *)
module FULL_ADDER (
    input A,
    input B,
    input C,
    output CARRY,
    output SUM
);
endmodule
