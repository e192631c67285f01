"""The environments in the shapes that other libraries expect; each module needs the library it is named after."""
