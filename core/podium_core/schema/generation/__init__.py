"""What is generated from the models: CustomResourceDefinitions and reference pages."""
